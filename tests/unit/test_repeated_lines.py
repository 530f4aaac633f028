"""Lines of the server's log that strangers cause are summed up."""

import importlib
import logging
from collections.abc import Iterator

import pytest

from barnabas.cli.output.repeated_lines import AT_BROKERS, AT_COORDINATION_SERVERS, RepeatedLines
from barnabas.net import tls_layer

NAME = tls_layer.logger.name
FORM = "The TLS handshake with %s:%d failed: %s"


@pytest.fixture
def repeated(caplog: pytest.LogCaptureFixture) -> Iterator[RepeatedLines]:
    """The filter, as a broker has it."""
    with caplog.at_level(logging.DEBUG, "barnabas"), RepeatedLines(AT_BROKERS) as made:
        yield made


def record(host: str, port: int, at_s: float, form: str = FORM) -> logging.LogRecord:
    made = logging.LogRecord(NAME, logging.INFO, __file__, 1, form, (host, port, "wrong version"), None)
    made.created = at_s
    return made


@pytest.mark.parametrize("name", sorted({*AT_BROKERS, *AT_COORDINATION_SERVERS}))
def test_the_loggers_are_those_that_write_of_strangers(name: str) -> None:
    """A module that moves takes its name along."""
    assert importlib.import_module(name).logger.name == name


def test_lines_of_coordination_servers_are_summed_up_by_address(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the port of a peer; who has authenticated as whom is always written."""
    connections, peers = (
        logging.getLogger(f"barnabas.coordination.{name}") for name in ("server.client_connections", "quorum.channels")
    )
    with caplog.at_level(logging.INFO, "barnabas"), RepeatedLines(AT_COORDINATION_SERVERS):
        for port in range(5):
            connections.warning("Too many connections from %s - max is %d (maxClientCnxns)", "10.0.0.7", 60)
            connections.info("Authenticated Id %r for scheme x509", "CN=a")
            peers.warning("Closing the connection of %s, which is not authenticated: %s", ("10.0.0.7", port), "late")
    texts = [each.getMessage() for each in caplog.records]
    assert texts.count("Authenticated Id 'CN=a' for scheme x509") == 5
    assert [text for text in texts if text.startswith("4 more like this of 10.0.0.7")] == texts[-2:]
    assert len(texts) == 5 + 2 + 2


def test_many_handshakes_that_fail_cost_two_lines(repeated: RepeatedLines, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever their ports: the first, and the number of the others a minute later."""
    logger = logging.getLogger(NAME)
    for port in range(10_000):
        logger.handle(record("10.0.0.7", port, 100.0))
    logger.handle(record("10.0.0.7", 1, 160.0))
    assert [each.getMessage() for each in caplog.records] == [
        "The TLS handshake with 10.0.0.7:0 failed: wrong version",
        f"9999 more like this of 10.0.0.7 since then: {FORM}",
    ]
    repeated.write_sums()
    assert caplog.records[-1].getMessage() == f"1 more like this of 10.0.0.7 since then: {FORM}"
    assert len(caplog.records) == 3


def test_a_filter_that_ended_counts_no_lines(caplog: pytest.LogCaptureFixture) -> None:
    """It writes what it counted, and the loggers are as before."""
    logger = logging.getLogger(NAME)
    before = list(logger.filters)
    with caplog.at_level(logging.INFO, "barnabas"), RepeatedLines(AT_BROKERS):
        for port in range(3):
            logger.handle(record("10.0.0.7", port, 100.0))
    assert caplog.records[-1].getMessage() == f"2 more like this of 10.0.0.7 since then: {FORM}"
    assert logger.filters == before


def test_lines_of_another_form_or_level_are_written(repeated: RepeatedLines, caplog: pytest.LogCaptureFixture) -> None:
    """An error is never left out, nor what happens for the first time."""
    logger = logging.getLogger(NAME)
    for _ in range(3):
        logger.handle(record("10.0.0.7", 1, 100.0))
        logger.handle(record("10.0.0.8", 1, 100.0))
        logger.handle(record("10.0.0.7", 1, 100.0, "Closing the connection from %s:%d: %s"))
        logger.error("an error of %s", "10.0.0.7")
        logger.debug("for developers, of %s", "10.0.0.7")
    assert len(caplog.records) == 3 + 3 + 3


def test_what_is_written_of_very_many_addresses_is_bounded(
    repeated: RepeatedLines, caplog: pytest.LogCaptureFixture
) -> None:
    """A network of attackers does not fill the disk either."""
    logger = logging.getLogger(NAME)
    for number in range(5000):
        logger.handle(record(f"10.0.{number // 256}.{number % 256}", 1, 100.0))
    repeated.write_sums()
    assert len(caplog.records) == 1000 + 200 + 1
    assert caplog.records[-1].getMessage().startswith("3800 more like this of others since then")

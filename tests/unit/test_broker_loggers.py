"""Log levels as BROKER_LOGGER resources."""

import logging
from collections.abc import Iterator

import pytest

from barnabas.broker.configuration.broker_loggers import alter_log_levels, log_levels
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = range(4)
NAME = "barnabas.test_broker_loggers.child"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """The levels of the package and of one logger, as they were before."""
    root, child = logging.getLogger("barnabas"), logging.getLogger(NAME)
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)
    child.setLevel(logging.NOTSET)


def test_a_level_that_is_set_holds_until_it_is_deleted() -> None:
    """Without a level of its own a logger has that of the root."""
    assert log_levels()[NAME] == "INFO"
    alter_log_levels([(NAME, SET, "DEBUG")], validate_only=False)
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    assert log_levels()[NAME] == "DEBUG"
    alter_log_levels([("root", SET, "ERROR"), (NAME, DELETE, None)], validate_only=False)
    assert log_levels()[NAME] == log_levels()["root"] == "ERROR"
    assert not logging.getLogger(NAME).isEnabledFor(logging.WARNING)


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_every_level_of_kafka_is_shown_as_it_was_set(level: str) -> None:
    """Python has no TRACE, and other names for WARN and FATAL."""
    alter_log_levels([(NAME, SET, level)], validate_only=False)
    assert log_levels()[NAME] == level


def test_an_operation_that_is_refused_keeps_all_levels() -> None:
    """All operations are checked before the first is applied; validation alone applies none."""
    with pytest.raises(KafkaError):
        alter_log_levels([(NAME, SET, "DEBUG"), ("no.such", SET, "DEBUG")], validate_only=False)
    alter_log_levels([(NAME, SET, "DEBUG")], validate_only=True)
    assert log_levels()[NAME] == "INFO"


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ((NAME, SET, "debug"), ErrorCode.INVALID_CONFIG),
        ((NAME, SET, "OFF"), ErrorCode.INVALID_CONFIG),
        (("asyncio", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        (("barnabas.test_broker_loggers", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        (("no.such", DELETE, None), ErrorCode.INVALID_CONFIG),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ((NAME, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ((NAME, SUBTRACT, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ((NAME, 9, "DEBUG"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_level_or_no_logger_of_ours_is_refused(
    operation: tuple[str, int, str | None], code: ErrorCode
) -> None:
    """Loggers of the application around the broker are not for clients."""
    logging.getLogger("asyncio")
    with pytest.raises(KafkaError) as error:
        alter_log_levels([operation], validate_only=False)
    assert error.value.code is code

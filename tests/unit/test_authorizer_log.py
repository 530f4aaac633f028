"""The file of the authorizer's log: who may read it, what is in it, and what happens when it is
renamed."""

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.broker.configuration.broker_loggers import alter_log_levels, log_levels
from barnabas.cli.output.authorizer_log import keep_audit_lines, write_audit_lines_to

NAME = "kafka.authorizer.logger"
SET, DELETE = 0, 1


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """The authorizer's logger, as it was before."""
    found = logging.getLogger(NAME)
    before = found.level, found.propagate, list(found.handlers)
    yield found
    for handler in found.handlers:
        if handler not in before[2]:
            handler.close()
    found.handlers = before[2]
    found.setLevel(before[0])
    found.propagate = before[1]


def test_lines_of_text_are_for_their_owner_alone_and_not_in_the_servers_log(
    tmp_path: Path, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    """With the time, the level and the name of the logger, as Kafka's."""
    path = tmp_path / "authorizer.log"
    keep_audit_lines()
    write_audit_lines_to(str(path), "text")
    logger.info("%s", "Principal = User:bob\nis Denied", extra={"audit": {"allowed": False}})
    (line,) = path.read_text().splitlines()
    assert line.startswith("[2")
    assert line.endswith(f" INFO Principal = User:bob\\nis Denied ({NAME})")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert caplog.records == []


def test_lines_of_json_are_objects_with_the_time(tmp_path: Path, logger: logging.Logger) -> None:
    """One a line, whatever a client has called itself."""
    path = tmp_path / "authorizer.log"
    keep_audit_lines()
    write_audit_lines_to(str(path), "json")
    logger.info("%s", "text", extra={"audit": {"principal": 'User:"a\nb', "allowed": False}})
    logger.info("only text")
    first, second = map(json.loads, path.read_text().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"principal": 'User:"a\nb', "allowed": False}
    assert second["message"] == "only text"


def test_lines_that_exist_are_kept_and_a_renamed_file_is_begun_again(tmp_path: Path, logger: logging.Logger) -> None:
    """As logrotate and a new start of the server need it."""
    path = tmp_path / "authorizer.log"
    path.write_text("before\n")
    keep_audit_lines()
    write_audit_lines_to(str(path), "text")
    logger.info("first")
    path.rename(tmp_path / "authorizer.log.1")
    logger.info("second")
    assert [" first " in line for line in (tmp_path / "authorizer.log.1").read_text().splitlines()] == [False, True]
    assert " second " in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_audit_lines_are_written_whatever_the_level_of_the_servers_log(logger: logging.Logger) -> None:
    """A server that logs errors alone still says what it denied."""
    keep_audit_lines()
    assert logger.isEnabledFor(logging.INFO)
    assert not logger.isEnabledFor(logging.DEBUG)


def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    """A broker without its audit log would look as if nothing had been denied."""
    with pytest.raises(BarnabasError, match=r"--authorizer-log .*No such file or directory"):
        write_audit_lines_to(str(tmp_path / "missing" / "authorizer.log"), "text")


def test_the_level_of_the_audit_log_can_be_changed_while_the_broker_runs(logger: logging.Logger) -> None:
    """By Kafka's name of the logger; DEBUG shows what is allowed, too."""
    keep_audit_lines()
    assert log_levels()[NAME] == "INFO"
    alter_log_levels([(NAME, SET, "DEBUG")], validate_only=False)
    assert logger.isEnabledFor(logging.DEBUG)
    alter_log_levels([(NAME, DELETE, None)], validate_only=False)

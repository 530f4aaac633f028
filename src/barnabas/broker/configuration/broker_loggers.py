"""Log levels of this process's loggers as BROKER_LOGGER resources (Kafka's
`Log4jController`, KIP-412).

Names are those of Python's loggers, and ``root`` is the one above all of Barnabas: the loggers of
an application that embeds a broker are not for clients to see or change. The logger of the
authorizer has Kafka's name. Levels have Kafka's names.
They last until the process ends.
"""

import logging
from collections.abc import Iterable, Mapping

from barnabas.broker.configuration.operations import APPEND, DELETE, SET, SUBTRACT, AlterConfigOp
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["ROOT", "alter_log_levels", "log_levels"]

ROOT = "root"
_PACKAGE = "barnabas"
_AUDIT = "kafka.authorizer.logger"
_LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def _loggers() -> Mapping[str, logging.Logger]:
    existing = {
        name: logger
        for name, logger in sorted(logging.Logger.manager.loggerDict.items())
        if (name.startswith(f"{_PACKAGE}.") or name == _AUDIT) and isinstance(logger, logging.Logger)
    }
    return {ROOT: logging.getLogger(_PACKAGE), **existing}


def log_levels() -> dict[str, str]:
    """The level that holds for each logger, its own or an inherited one."""
    return {name: _name_of(logger.getEffectiveLevel()) for name, logger in _loggers().items()}


def _name_of(level: int) -> str:
    """The name of the least level that is logged."""
    return next((name for name, value in _LEVELS.items() if level <= value), "FATAL")


def alter_log_levels(operations: Iterable[AlterConfigOp], *, validate_only: bool) -> None:
    """Apply the operations, all or none; raises `KafkaError` with Kafka's words."""
    loggers = _loggers()
    changes: list[tuple[logging.Logger, int]] = []
    for name, operation, text in operations:
        if operation == SET:
            logger = _existing(loggers, name)
            if text not in _LEVELS:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {name} to {text} as it is not a supported log level. "
                    f"Valid log levels are {', '.join(sorted(_LEVELS))}",
                )
            changes.append((logger, _LEVELS[text]))
        elif operation == DELETE:
            logger = _existing(loggers, name)
            if name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
            changes.append((logger, logging.NOTSET))
        elif operation in (APPEND, SUBTRACT):
            word = "APPEND" if operation == APPEND else "SUBTRACT"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource"
            )
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
    if not validate_only:
        for logger, level in changes:
            logger.setLevel(level)


def _existing(loggers: Mapping[str, logging.Logger], name: str) -> logging.Logger:
    if name not in loggers:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    return loggers[name]

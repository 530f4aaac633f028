"""The limit of open descriptors: raised at the start of a server, and shared between
connections and files.

A broker that cannot open a segment is worse off than a client that waits in the backlog, so
connections may not use the last quarter of the descriptors. New descriptors get the lowest free
number: a high number means that all below it are in use, and no count has to be kept. Log files
that stay open have a quarter of the descriptors; the rest is for files that are open for a
moment, and for those that are being sent. Counterpart in Kafka: none, the JVM raises the limit
and Kafka accepts until EMFILE.
"""

import logging
import os
import sys

from barnabas.base.errors import ConfigError

__all__ = [
    "check_descriptor_limit",
    "connection_ceiling",
    "descriptor_limit",
    "is_out_of_descriptors",
    "kept_log_files",
    "raise_descriptor_limit",
]

logger = logging.getLogger(__name__)

_WANTED = 100_000
"""Kafka's documentation recommends at least this many for a broker."""
_FEW = 2048
_LEAST = 128
_MOST_KEPT = 512


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, at most to 100,000; return the limit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return sys.maxsize
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft  # some systems allow less than their hard limit says
        return wanted
    return soft


def check_descriptor_limit(limit: int) -> None:
    """Log a warning for a low limit.

    Raises `ConfigError` for one with which a broker cannot work."""
    if limit < _LEAST:
        raise ConfigError(
            f"The limit of open files is {limit}. A broker needs {_LEAST} at least, and {_WANTED} are recommended: raise "
            "the limit (ulimit -n, LimitNOFILE of systemd)."
        )
    if limit < _FEW:
        logger.warning(
            "The limit of open files is %d: at most %d log files stay open, and %d connections are accepted, %d from one "
            "address, unless max.connections and max.connections.per.ip are set. "
            "%d are recommended: raise the limit (ulimit -n, LimitNOFILE of systemd).",
            limit,
            kept_log_files(limit),
            limit // 2,
            limit // 4,
            _WANTED,
        )


def kept_log_files(limit: int) -> int:
    """How many log files a broker keeps open between their uses."""
    return min(_MOST_KEPT, limit // 4)


def descriptor_limit() -> int:
    """How many descriptors the process may have now."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def connection_ceiling() -> int:
    """The first descriptor number that connections leave to files."""
    limit = descriptor_limit()
    return limit if limit == sys.maxsize else limit - limit // 4


def is_out_of_descriptors(descriptor: int, ceiling: int) -> bool:
    """Whether a new descriptor would have a number from ``ceiling`` on.

    ``descriptor`` is any open one."""
    try:
        probe = os.dup(descriptor)
    except OSError:
        return True
    os.close(probe)
    return probe >= ceiling

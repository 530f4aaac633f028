"""The limit of open descriptors: raised at the start of a server, and shared between connections and files.

A broker that cannot open a segment is worse off than a client that waits in the backlog, so connections may not use the
last quarter of the descriptors. New descriptors get the lowest free number: a high number means that all below it are in
use, and no count has to be kept. Counterpart in Kafka: none, the JVM raises the limit and Kafka accepts until EMFILE.
"""

import os
import sys

__all__ = ["connection_ceiling", "is_out_of_descriptors", "raise_descriptor_limit"]

_WANTED = 100_000
"""Kafka's documentation recommends at least so many for a broker."""


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


def connection_ceiling() -> int:
    """The first descriptor number that connections leave to files."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft - soft // 4


def is_out_of_descriptors(descriptor: int, ceiling: int) -> bool:
    """Whether a new descriptor would have a number from ``ceiling`` on; ``descriptor`` is any open one."""
    try:
        probe = os.dup(descriptor)
    except OSError:
        return True
    os.close(probe)
    return probe >= ceiling

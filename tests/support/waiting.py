"""Waiting for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], *, timeout_s: float = 30, what: str = "") -> T:
    """The first true value of ``condition``; fails when there is none in time."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {timeout_s} s: {what or condition}"
        time.sleep(0.01)

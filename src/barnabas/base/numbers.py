"""Numbers from outside, read strictly.

Python's ``int`` also takes blanks, ``1_000`` and the digits of every script; none of these is a
number to Kafka's tools, and a mistyped one would be another number than was meant.
"""

import re

__all__ = ["LARGEST_INT32", "LARGEST_INT64", "NUMBER", "WHOLE_NUMBER", "number_from", "whole_number"]

LARGEST_INT32 = (1 << 31) - 1
LARGEST_INT64 = (1 << 63) - 1
WHOLE_NUMBER = "[+-]?[0-9]{1,19}"
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"
"""What is a number as a text, as regular expressions of Python and of Java, whose
flows read them too."""
_NUMBER = re.compile(NUMBER + "|inf", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(WHOLE_NUMBER, re.ASCII)


def whole_number(text: str) -> int:
    """The number, which fits 64 bits; raises `ValueError` for any other text."""
    if _WHOLE.fullmatch(text) and abs(number := int(text)) <= LARGEST_INT64:
        return number
    raise ValueError(f"{text[:100]!r} is no whole number of 64 bits")


def number_from(text: str) -> float:
    """The number, or infinity as ``inf``; raises `ValueError` for any other text, NaN too."""
    if _NUMBER.fullmatch(text):
        return float(text)
    raise ValueError(f"{text[:100]!r} is no number")

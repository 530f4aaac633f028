"""The common part of a segment's two indexes: columns of numbers that rise from entry to entry.

Kafka: AbstractIndex.

A file may end in zeros: Apache's broker gives the active segment's indexes their full size in
advance, and a crash leaves them so. Reading keeps the longest prefix of entries that rise and
lie inside the log.
"""

import operator
from array import array
from itertools import islice

__all__ = ["LITTLE_ENDIAN", "rising_prefix"]

LITTLE_ENDIAN = array("H", [1]).tobytes()[0] == 1


def _is_rising(column: "array[int]") -> bool:
    return all(map(operator.lt, column, islice(column, 1, None)))


def rising_prefix(column: "array[int]") -> int:
    """How many entries rise before the first that does not."""
    if _is_rising(column):
        return len(column)
    for entry in range(1, len(column)):
        if column[entry] <= column[entry - 1]:
            return entry
    return len(column)

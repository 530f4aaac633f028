"""What a flow has put into a sink, as an Arrow table, with a mark by which it is seen that
nothing has changed since."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from barnabas.pipelines.outputs.declared import NoResultError, Sink
from barnabas.pipelines.outputs.registry import is_table, table_kind_of

__all__ = ["ResultReader", "readable_sinks"]


def readable_sinks(sinks: Sequence[Sink]) -> list[tuple[int, Sink]]:
    """The sinks whose results can be read back, with their numbers in the flow's file."""
    return [(number, sink) for number, sink in enumerate(sinks) if is_table(sink) and table_kind_of(sink).is_readable]


class ResultReader:
    """Reads one sink."""

    def __init__(self, sink: Sink, *, wait: Callable[[float], None] = time.sleep) -> None:
        self._sink = sink
        self._wait = wait

    def mark(self) -> Any:
        """Something that differs when the result may have changed; None if that is not known."""
        return table_kind_of(self._sink).mark(self._sink) if is_table(self._sink) else None

    def read(self) -> pa.Table:
        """All rows. Times are times, whatever form the sink keeps them in."""
        if not is_table(self._sink):
            raise NoResultError("the results of this sink cannot be read back")
        return table_kind_of(self._sink).read(self._sink, self._wait)

"""The offsets that bound a log.

Kafka: UnifiedLog's log start offset, high watermark, last stable offset, log end offset.

``log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset``, always. Records
below the log start offset are deleted; records from the high watermark on are not yet replicated;
records from the last stable offset on belong, or may belong, to transactions that are not decided.
"""

__all__ = ["Bounds"]


class Bounds:
    """The offsets of one log. Change them with the methods only: each keeps the order above."""

    __slots__ = ("cleaned_offset", "first_unstable_offset", "high_watermark", "log_end_offset", "log_start_offset")

    def __init__(self, log_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        """The offset below which all records are replicated."""
        self.first_unstable_offset: int | None = None
        """Where the first transaction begins that is not decided; None when there is none."""
        self.cleaned_offset: int | None = None
        """Where the last compaction ended; None when there was none."""

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and replicated."""
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None or unstable > self.high_watermark else unstable

    def extend(self, log_end_offset: int) -> None:
        """Records were appended."""
        self.log_end_offset = log_end_offset

    def move_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log. Returns where it is now."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        return offset

    def raise_start(self, offset: int) -> None:
        """Records below an offset are gone."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.high_watermark = max(self.high_watermark, offset)

    def cut(self, offset: int) -> None:
        """The log ends at an offset now, which may lie before its start."""
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)

    def restart(self, offset: int) -> None:
        """The log is empty: it begins and ends at an offset."""
        self.log_start_offset = self.log_end_offset = offset
        self.cut(offset)
        self.high_watermark = offset

    def set_first_unstable(self, offset: int | None) -> None:
        """Where the first undecided transaction begins, by the producer state."""
        self.first_unstable_offset = None if offset is None else max(offset, self.log_start_offset)

    def set_cleaned(self, offset: int | None) -> None:
        """A compaction ended at an offset."""
        self.cleaned_offset = offset

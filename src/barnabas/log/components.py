"""The components of a log.

Each component keeps its own invariants; only its own methods write its attributes. The
modules `append`, `truncation`, `retention` and `recovery` work on these components;
`partition_log` puts them together.

In Kafka: the fields of `UnifiedLog` and `LocalLog`.
"""

from typing import NamedTuple

from barnabas.log.bounds import Bounds
from barnabas.log.deletions import Deletions
from barnabas.log.durability import Durability
from barnabas.log.holes import Holes
from barnabas.log.leader_epochs import LeaderEpochCache
from barnabas.log.producer_snapshots import ProducerSnapshots
from barnabas.log.producer_state import ProducerState
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.settings import LogConfig

__all__ = ["LogComponents", "raise_start", "roll"]


class LogComponents(NamedTuple):
    """The components of one log."""

    folder: Folder
    segments: Segments
    bounds: Bounds
    durability: Durability
    epochs: LeaderEpochCache
    producers: ProducerState
    snapshots: ProducerSnapshots
    deletions: Deletions
    holes: Holes

    def update_stable(self) -> None:
        """Bring the last stable offset up to the producer state."""
        self.bounds.set_first_unstable(self.producers.first_unstable_offset)


def roll(components: LogComponents, config: LogConfig, base_offset: int, now_ms: int) -> Segment:
    """Begin a new segment, unless the active one is empty and begins there. Raises `OSError`.

    Everything that can fail comes before the new segment takes its place.
    """
    segments = components.segments
    old = segments.active
    if base_offset == old.base_offset:
        return old  # it is empty: another would have the same name
    old.finish_indexes()
    components.snapshots.take(components.producers, base_offset)
    segment = segments.roll(base_offset, now_ms)
    segments.set_jitter(min(config.segment_jitter_ms, config.segment_ms))
    components.durability.names_changed()
    return segment


def raise_start(components: LogComponents, offset: int) -> None:
    """Raise the log start offset. Raises `OSError`, and then nothing has changed."""
    if offset > components.bounds.log_start_offset:
        components.epochs.truncate_from_start(offset)
        components.bounds.raise_start(offset)
        components.producers.high_watermark_moved(offset)
        components.update_stable()

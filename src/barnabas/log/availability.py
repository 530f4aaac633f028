"""Whether a log can be used, and what a failure of its disk does.

Kafka: LogDirFailureChannel, as one log sees it.

An `OSError` takes the log offline, and with it, by ``on_failure``, its whole log dir: the call and
all later ones raise `KafkaError` KAFKA_STORAGE_ERROR. Nothing is retried.

A shortage of file descriptors is no failure of a disk: the call raises the same error,
and the log stays online.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.base.files import is_descriptor_shortage
from barnabas.base.ids import TopicPartition
from barnabas.log.segment.folder import Folder
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["Availability"]


class Availability:
    """Why a log cannot be used any more, if it cannot."""

    __slots__ = ("_folder", "_on_failure", "_topic_partition", "reason")

    def __init__(self, folder: Folder, topic_partition: TopicPartition, on_failure: Callable[[str], None]) -> None:
        self._folder = folder
        self._topic_partition = topic_partition
        self._on_failure = on_failure
        self.reason: str | None = None
        """None while the log can be used."""

    def on_failure(self, on_failure: Callable[[str], None]) -> None:
        """Call ``on_failure(reason)`` from now on when the disk fails."""
        self._on_failure = on_failure

    def fail(self, error: OSError, doing: str) -> KafkaError:
        """A call of the file system failed. Returns what to raise."""
        message = f"Error while {doing} {self._topic_partition} in {self._folder.directory}: {error}"
        if self.reason is None and not is_descriptor_shortage(error):
            self.reason = message
            self._on_failure(message)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def take_offline(self, reason: str) -> None:
        """The log must not be used any more; the first reason is kept."""
        self.reason = self.reason or reason

    def bring_back(self) -> None:
        """The log can be used again: what took it offline was undone."""
        self.reason = None

    def check(self) -> None:
        """Raises `KafkaError` KAFKA_STORAGE_ERROR while the log is offline."""
        if self.reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.reason)

    @contextmanager
    def guard(self, doing: str) -> Iterator[None]:
        """Run disk operations: an `OSError` takes the log offline and becomes a
        `KafkaError` KAFKA_STORAGE_ERROR."""
        self.check()
        try:
            yield
        except OSError as error:
            raise self.fail(error, doing) from error

"""Which offsets a consumer in virtual time has handed out, may commit and has committed."""

import asyncio
import contextlib
from collections.abc import Callable

from barnabas.base.ids import TopicPartition
from barnabas.client.consumer.consumer import OnCommit
from barnabas.client.errors import ClientError
from barnabas.testing.virtual.membership import Membership

__all__ = ["Commits"]

_COMMIT_S = 60.0


class Commits:
    """A record counts as processed when the next one is asked for: `store` lets
    commits include it."""

    def __init__(self, group: Callable[[], Membership], on_commit: OnCommit | None) -> None:
        self._group = group
        self._on_commit = on_commit
        self.handed_out: dict[TopicPartition, int] = {}
        self._stored: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}

    def clear(self) -> None:
        """The partitions are gone."""
        self.handed_out.clear()
        self._stored.clear()

    def store(self) -> None:
        """Let automatic commits include what was handed out."""
        self._stored |= self.handed_out
        self.handed_out.clear()

    def news(self) -> dict[TopicPartition, int]:
        """What may be committed and is not yet."""
        return {
            topic_partition: offset
            for topic_partition, offset in self._stored.items()
            if self.committed.get(topic_partition) != offset
        }

    async def commit(self, wanted: dict[TopicPartition, int], timeout_s: float = _COMMIT_S) -> None:
        """Commit; raises `ClientError`."""
        if wanted:
            await self._group().commit(wanted, timeout_s)
            self.committed |= wanted

    async def commit_behind(self, wanted: dict[TopicPartition, int]) -> None:
        """Commit in the background; its end is reported."""
        problem: ClientError | None = None
        try:
            await self.commit(wanted)
        except ClientError as error:
            problem = error
        if self._on_commit is not None and wanted:
            self._on_commit(wanted, problem)

    async def commit_regularly(self, interval_ms: int) -> None:
        """As ``enable.auto.commit`` does."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.commit_behind(self.news())

    async def commit_last(self, timeout_s: float = _COMMIT_S) -> None:
        """Commit before partitions go; what fails is read again."""
        with contextlib.suppress(ClientError):
            await self.commit(self.news(), timeout_s)

"""Programs of others that copy in transactions: each is killed while it has an open transaction,
and started again.

An open transaction holds readers at read_committed back: the last stable offset is below the end of
the log. The program is stopped before the two are compared. One thing may still come: a request to
end the transaction, on its way to the coordinator. Only what the next run finds tells the two cases
apart, so that `copy_through_kills` kills once more if nothing was aborted.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias

import confluent_kafka
from confluent_kafka.admin import AdminClient, OffsetSpec

from barnabas.client.admin.transactions import list_transactions
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from support.transaction_copies import read_committed
from support.waiting import eventually

__all__ = ["Feed", "Numbers", "Program", "copy_through_kills", "kill_a_coordinator", "running"]

Program: TypeAlias = "subprocess.Popen[bytes]"

_LIMIT_S = 120
_FEW, _MANY = 5, 100
_ATTEMPTS = 5
_LEVELS = (confluent_kafka.IsolationLevel.READ_UNCOMMITTED, confluent_kafka.IsolationLevel.READ_COMMITTED)


class Feed(Protocol):
    """What a program copies; it grows."""

    count: int

    def add(self, count: int) -> None:
        """The next ones."""


class Numbers:
    """The numbers 0, 1, 2 ... in the partition of a topic, all with one key."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._topic = topic
        self.count = 0

    def add(self, count: int) -> None:
        """The next ones."""
        for number in range(self.count, self.count + count):
            self._producer.produce(self._topic, str(number), b"numbers", partition=0)
        assert self._producer.flush(_LIMIT_S) == 0
        self.count += count


@contextlib.contextmanager
def running(command: Sequence[object], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Program]:
    """A program in a process group of its own, killed at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield process
    except AssertionError as failure:
        failure.add_note(f"{log}: {log.read_text()[-4000:]}")
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def copy_through_kills(
    run: Callable[[], contextlib.AbstractContextManager[Program]],
    bootstrap: str,
    target: str,
    feed: Feed,
    meanwhile: Callable[[Program], object] = lambda _: None,
) -> list[str]:
    """The values in ``target`` after a kill of the program in a transaction, and a second run.

    ``meanwhile`` is called in the second run, which has a part of the feed still to copy. Aborted
    records of the first run are beside the values, for readers at read_uncommitted.
    """
    for _ in range(_ATTEMPTS):
        before = _ends(bootstrap, target)[1]
        feed.add(_MANY)
        with run() as process:
            _kill_in_a_transaction(process, bootstrap, target, feed, before)
        feed.add(_MANY)
        with run() as process:
            meanwhile(process)
            _wait_for_all(process, bootstrap, target, feed.count)
        values = read_committed(bootstrap, target)
        if len(read_committed(bootstrap, target, isolation="read_uncommitted")) > len(values):
            return values
    raise AssertionError(f"none of {_ATTEMPTS} kills was in an open transaction")


def kill_a_coordinator(cluster: ProcessCluster, process: Program, feed: Feed) -> None:
    """SIGKILL to the broker that coordinates an open transaction, which is then started again."""

    def is_killed() -> bool:
        assert process.poll() is None, "the program has ended"
        with AdminConnection(cluster.bootstrap_servers) as connection:
            found = list_transactions(connection, states=("Ongoing",))
        if not found:
            feed.add(_FEW)
            return False
        cluster.kill_broker(found[0].coordinator)
        cluster.start_broker(found[0].coordinator)
        return True

    eventually(is_killed, timeout_s=_LIMIT_S, what="an open transaction")
    feed.add(_MANY)


def _kill_in_a_transaction(process: Program, bootstrap: str, target: str, feed: Feed, before: int) -> None:
    """SIGKILL while records of an open transaction are in the topic.

    ``before`` is the last stable offset before the program was started.
    """

    def has_begun() -> bool:
        assert process.poll() is None, "the program has ended"
        return _ends(bootstrap, target)[1] > before

    def is_caught() -> bool:
        assert process.poll() is None, "the program has ended"
        end, stable = _ends(bootstrap, target)
        if end == stable:
            feed.add(_FEW)
            return False
        os.killpg(process.pid, signal.SIGSTOP)
        eventually(lambda: not _ending(bootstrap), timeout_s=_LIMIT_S, what="what was to be ended has ended")
        end, stable = _ends(bootstrap, target)
        os.killpg(process.pid, signal.SIGKILL if end > stable else signal.SIGCONT)
        return end > stable

    eventually(has_begun, timeout_s=_LIMIT_S, what=f"the first transaction in {target}")
    eventually(is_caught, timeout_s=_LIMIT_S, what=f"an open transaction in {target}")
    process.wait()


def _ends(bootstrap: str, topic: str) -> tuple[int, int]:
    """The end of the log, and the end for readers at read_committed."""
    admin = _admin(bootstrap)
    partition = confluent_kafka.TopicPartition(topic, 0)
    end, stable = (
        admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)[partition].result(_LIMIT_S).offset
        for level in _LEVELS
    )
    return end, stable


@cache
def _admin(bootstrap: str) -> AdminClient:
    """One client for all requests: to connect takes longer than a short transaction."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _ending(bootstrap: str) -> bool:
    """Whether a coordinator is ending a transaction at its producer's request."""
    with AdminConnection(bootstrap) as connection:
        return bool(list_transactions(connection, states=("PrepareCommit", "PrepareAbort")))


def _wait_for_all(process: Program, bootstrap: str, target: str, count: int) -> None:
    """Wait until ``count`` values are there at read_committed, while the program runs."""

    def is_done() -> bool:
        assert process.poll() is None, "the program has ended"
        return len(read_committed(bootstrap, target)) >= count

    eventually(is_done, timeout_s=_LIMIT_S, what=f"{count} records in {target}")

"""Programs of others that copy in transactions: each is killed while it has an open transaction,
and started again.

An open transaction holds readers at read_committed back: the last stable offset is below the end of
the log. The program is stopped before the two are compared, so that nothing changes until the kill.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import confluent_kafka
from confluent_kafka.admin import AdminClient, OffsetSpec

from barnabas.client.admin.transactions import list_transactions
from barnabas.client.cluster.admin_connection import AdminConnection
from support.transaction_copies import read_committed
from support.waiting import eventually

__all__ = ["Numbers", "Program", "kill_in_a_transaction", "running", "wait_for_all"]

Program: TypeAlias = "subprocess.Popen[bytes]"

_LIMIT_S = 120
_FEW = 5
_LEVELS = (confluent_kafka.IsolationLevel.READ_UNCOMMITTED, confluent_kafka.IsolationLevel.READ_COMMITTED)


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


def kill_in_a_transaction(process: Program, bootstrap: str, target: str, add: Callable[[int], None]) -> None:
    """SIGKILL while records of an open transaction are in the topic.

    ``add`` gives the program a number of records more."""

    def has_begun() -> bool:
        assert process.poll() is None, "the program has ended"
        return _ends(bootstrap, target)[1] > 0

    def is_caught() -> bool:
        assert process.poll() is None, "the program has ended"
        end, stable = _ends(bootstrap, target)
        if end == stable:
            add(_FEW)
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


def wait_for_all(process: Program, bootstrap: str, target: str, count: int) -> list[str]:
    """All values at read_committed once there are ``count``, while the program runs."""

    def is_done() -> list[str]:
        assert process.poll() is None, "the program has ended"
        values = read_committed(bootstrap, target)
        return values if len(values) >= count else []

    return eventually(is_done, timeout_s=_LIMIT_S, what=f"{count} records in {target}")

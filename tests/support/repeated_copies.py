"""Programs of others that copy a topic without transactions, and commit offsets behind what they
wrote: a program that is killed does some of it again, and misses nothing.
"""

import contextlib
from collections.abc import Callable

from barnabas.testing import ProcessCluster
from support.killed_brokers import coordinator_killed, leader_killed
from support.transaction_copies import committed, make, read_committed
from support.transaction_kills import Numbers, Program
from support.waiting import eventually

__all__ = ["RepeatedCopy", "first_of_each"]

_A_TIME = 300
_ATTEMPTS = 5
_LIMIT_S = 90


def first_of_each(values: list[str]) -> list[str]:
    """In their order, without what comes again."""
    return list(dict.fromkeys(values))


class RepeatedCopy:
    """A topic with numbers, and the one to which a program copies them."""

    def __init__(self, cluster: ProcessCluster, name: str, *, in_group: bool = True) -> None:
        """``name`` is the group, where the program has one: ``in_group``."""
        self._cluster = cluster
        self._group = name if in_group else None
        bootstrap = cluster.bootstrap_servers
        self.source, self.target = (make(bootstrap, f"{name}-{end}", 1, 3) for end in ("in", "out"))
        self.numbers = Numbers(bootstrap, self.source)

    @property
    def values(self) -> list[str]:
        """What is copied."""
        return read_committed(self._cluster.bootstrap_servers, self.target)

    def is_whole_through_kills(self, run: Callable[[], contextlib.AbstractContextManager[Program]]) -> bool:
        """Whether each number is there at least once, for the first time in order.

        The program is killed with records still to copy, and runs again; then the leader of what it
        writes is killed, and the coordinator of its group."""
        assert any(self._is_killed_in_the_middle(run) for _ in range(_ATTEMPTS)), "each kill came too late"
        with run() as process:
            self._wait_for(process, self.numbers.count)
            self.numbers.add(_A_TIME)
            with leader_killed(self._cluster, self.target):
                self.numbers.add(_A_TIME)
                self._wait_for(process, self.numbers.count)
            if self._group is not None:
                with coordinator_killed(self._cluster, self._group):
                    self.numbers.add(_A_TIME)
                    self._wait_for(process, self.numbers.count)
                eventually(self._is_committed, timeout_s=_LIMIT_S, what=f"the last offset of {self._group}")
        return first_of_each(self.values) == [str(number) for number in range(self.numbers.count)]

    def _is_killed_in_the_middle(self, run: Callable[[], contextlib.AbstractContextManager[Program]]) -> bool:
        done = len(set(self.values))
        self.numbers.add(_A_TIME)
        with run() as process:
            self._wait_for(process, done + 1)
            self.numbers.add(_A_TIME)
        return len(set(self.values)) < self.numbers.count

    def _wait_for(self, process: Program, count: int) -> None:
        def are_there() -> bool:
            assert process.poll() is None, f"the program has ended with {process.returncode}"
            return len(set(self.values)) >= count

        eventually(are_there, timeout_s=_LIMIT_S, what=f"{count} numbers in {self.target}")

    def _is_committed(self) -> bool:
        return committed(self._cluster.bootstrap_servers, str(self._group), self.source) == self.numbers.count

"""The states of a server and of its log, and the batches in which a log is written."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest

from barnabas.coordination.server.server_state import (
    LOG_TRANSITIONS,
    SERVER_TRANSITIONS,
    LogEvent,
    LogState,
    ServerEvent,
    ServerState,
    StateMachine,
    UnknownEventError,
)
from barnabas.coordination.server.sync_request_processor import Entries, SyncRequestProcessor

TABLES: list[tuple[Any, Any, Enum, Enum]] = [
    (SERVER_TRANSITIONS, ServerEvent, ServerState.INITIAL, ServerState.SHUTDOWN),
    (LOG_TRANSITIONS, LogEvent, LogState.IDLE, LogState.ENDED),
]


@pytest.mark.parametrize(("table", "events", "first", "last"), TABLES)
def test_every_state_is_reached_from_the_first_and_only_the_last_has_no_way_out(
    table: Any, events: Any, first: Enum, last: Enum
) -> None:
    """No state is without use, and whatever happened, the end can be reached."""
    reached, waiting = {first}, [first]
    while waiting:
        new = set(table[waiting.pop()].values()) - reached
        reached |= new
        waiting += new
    assert reached == set(type(first))
    assert [state for state in table if set(table[state].values()) <= {state}] == [last]
    assert {event for entry in table.values() for event in entry} == set(events)


@pytest.mark.parametrize(("table", "events", "first", "last"), TABLES)
def test_a_state_that_does_not_know_an_event_stays(table: Any, events: Any, first: Enum, last: Enum) -> None:
    """Each event in each state: the table's state follows, or an error and the state as it was."""
    for state in type(first):
        for event in events:
            machine: StateMachine[Any, Any] = StateMachine(table, state)
            if event in table[state]:
                machine.on(event)
                assert machine.state is table[state][event]
            else:
                with pytest.raises(UnknownEventError):
                    machine.on(event)
                assert machine.state is state


@pytest.mark.parametrize("state", [ServerState.ERROR, ServerState.SHUTDOWN])
def test_a_server_that_failed_or_is_closed_never_serves_again(state: ServerState) -> None:
    """Neither a new role nor a restored snapshot changes that."""
    assert SERVER_TRANSITIONS[state][ServerEvent.SERVES] is state


class Source:
    """Transactions for the log, in order from 1."""

    def __init__(self) -> None:
        self.unlogged: list[bytes | bytearray] = []
        self.count = 0

    @property
    def first_unlogged_zxid(self) -> int:
        return self.count - len(self.unlogged) + 1

    def decide(self, *payloads: bytes) -> None:
        self.unlogged += payloads
        self.count += len(payloads)


class Log:
    """A `SyncRequestProcessor` whose thread and event loop do their work when the test says so."""

    def __init__(self, propose: Callable[[], None] | None = None) -> None:
        self.source = Source()
        self.turn: list[Callable[[], None]] = []
        self.thread: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.files: list[list[tuple[int, list[bytes]]]] = [[]]
        self.synced: list[tuple[int, bool]] = []
        self.written = 0
        self.processor = SyncRequestProcessor(
            self.source,
            self._append,
            lambda work, done: self.thread.append((work, done)),
            self.turn.append,
            lambda: 0,
            lambda entries, _, error: self.synced.append((len(entries), error is None)),
            propose,
        )
        self.processor.on_written = self._count

    def _append(self, first_zxid: int, entries: Entries, roll: bool) -> None:
        if roll:
            self.files.append([])
        self.files[-1].append((first_zxid, [bytes(entry) for entry in entries]))

    def _count(self) -> None:
        self.written += 1

    def end_turn(self) -> None:
        calls, self.turn[:] = self.turn[:], []
        for call in calls:
            call()

    def sync(self, error: BaseException | None = None) -> None:
        work, done = self.thread.pop(0)
        work()
        done(error)


def test_what_is_decided_during_a_sync_is_the_next_batch() -> None:
    """A batch is taken at the end of a turn, and one at a time."""
    log = Log()
    log.source.decide(b"1")
    log.processor.wake()
    log.source.decide(b"2")
    log.processor.wake()
    log.end_turn()
    assert log.processor.state is LogState.WRITING
    log.source.decide(b"3")
    log.processor.wake()
    log.source.decide(b"4")
    log.end_turn()
    assert len(log.thread) == 1
    log.processor.roll_next()
    log.sync()
    log.sync()
    assert log.files == [[(1, [b"1", b"2"])], [(3, [b"3", b"4"])]]
    assert log.synced == [(2, True), (2, True)]
    assert log.processor.state is LogState.IDLE


def test_a_leader_proposes_at_the_end_of_each_turn_also_during_a_sync() -> None:
    """Its followers log at the same time."""
    proposed: list[int] = []
    log = Log(lambda: proposed.append(log.source.count))
    log.source.decide(b"1")
    log.processor.wake()
    log.end_turn()
    log.source.decide(b"2")
    log.processor.wake()
    log.end_turn()
    assert proposed == [1, 2]
    assert len(log.thread) == 1


def test_nothing_is_written_behind_a_batch_that_failed() -> None:
    """A next sync could succeed, and would acknowledge what this one has lost."""
    log = Log()
    log.source.decide(b"1")
    log.processor.write()
    log.source.decide(b"2")
    log.sync(OSError("no disk"))
    log.processor.wake()
    log.processor.write()
    log.end_turn()
    assert log.synced == [(1, False)]
    assert not log.thread
    assert log.processor.state is LogState.ENDED


@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
def test_a_close_waits_for_the_batch_under_way_and_for_all_that_may_still_be_logged(ends: bool) -> None:
    """Where the log has ended, only for that batch: what was decided behind it is never logged."""
    log = Log()
    log.source.decide(b"1")
    log.processor.write()
    log.source.decide(b"2")
    if ends:
        log.processor.end()
    while log.processor.is_busy:
        log.processor.write()
        log.sync()
    assert [count for count, _ in log.synced] == ([1] if ends else [1, 1])
    assert log.written == len(log.synced)
    assert log.processor.state is (LogState.ENDED if ends else LogState.IDLE)

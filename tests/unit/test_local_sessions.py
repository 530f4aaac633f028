"""Sessions that one server keeps to itself: how they are tracked, become global, and expire."""

import pytest

from barnabas.base.tasks import Runner
from barnabas.coordination.core.connections import Limits
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.local_sessions import LocalSessions, UpgradeableSessionTracker, creates_ephemeral
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import LearnerSessionTracker, SessionTracker
from barnabas.wire.jute.codec import encode
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import CreateMode, OpCode
from barnabas.wire.jute.records import OPEN_ACL, CreateRequest
from support.broker import ManualClock, ManualTimers
from support.coordination_processor import Harness
from support.slicing import thread_at_once

LOCAL = LocalSessions(100, may_upgrade=True)


def test_a_learner_reports_a_session_only_when_it_is_global() -> None:
    """The leader does not know the local ones."""
    known = LearnerSessionTracker(7)
    tracker = UpgradeableSessionTracker(known, LOCAL, 0)
    session = tracker.track_local(tracker.new_id(), 1000, 0)
    tracker.touch(session, 10)
    assert (tracker.local_count, known.take_touched()) == (1, {})
    tracker.upgrade(session, 20)
    assert (tracker.local_count, known.take_touched()) == (0, {session.id: 1000})
    assert tracker.live(session.id) is session
    assert tracker.expire(10_000) == []  # the leader's task now


def test_a_local_session_expires_on_its_server_unless_it_is_heard() -> None:
    """And is gone from all sessions when it is removed."""
    tracker = UpgradeableSessionTracker(LearnerSessionTracker(7), LOCAL, 0)
    session = tracker.track_local(8, 1000, 0)
    tracker.touch(session, 900)
    assert tracker.expire(1500) == []
    assert tracker.expire(2100) == [session]
    assert tracker.remove(8) is session
    assert (tracker.sessions, tracker.local_count) == ({}, 0)


def test_the_leader_expires_a_session_that_was_local_by_its_own_tracker() -> None:
    """Once, after its time-out from the upgrade on."""
    tracker = UpgradeableSessionTracker(SessionTracker(100, 7, 0), LOCAL, 0)
    session = tracker.track_local(8, 1000, 0)
    tracker.upgrade(session, 500)
    assert tracker.expire(1400) == []
    assert tracker.expire(1700) == [session]


def test_a_local_session_does_not_move_to_another_server() -> None:
    """Its own server, here the leader, denies it when another one asks."""
    limits = Limits(min_session_timeout_ms=1, max_session_timeout_ms=9999, local_sessions=LOCAL)
    timers = ManualTimers(ManualClock())
    runner = Runner(timers.clock, timers, thread_at_once)
    processor = Processor(Database(), SessionTracker(100, 7, 0), limits, 0, runner=runner)
    assert isinstance(processor.tracker, UpgradeableSessionTracker)
    session = processor.tracker.track_local(8, 1000, 0)
    assert not processor.revalidate(object(), 8, 1000, 10)
    processor.tracker.upgrade(session, 20)
    assert processor.revalidate(object(), 8, 1000, 30)


@pytest.mark.parametrize("mode", CreateMode)
def test_a_creation_needs_a_global_session_if_it_is_ephemeral(mode: CreateMode) -> None:
    """Whatever else it is; and what cannot be read is not one."""
    body = bytes(encode(CreateRequest("/a", b"", list(OPEN_ACL), mode)))
    assert creates_ephemeral(OpCode.CREATE2, body, None) is mode.is_ephemeral
    assert not creates_ephemeral(OpCode.SET_DATA, body, None)
    assert not creates_ephemeral(OpCode.CREATE, body[:5], None)


@pytest.mark.parametrize("in_multi", [False, True])
def test_a_server_alone_refuses_ephemeral_nodes_of_local_sessions(in_multi: bool) -> None:
    """However the request is read; a persistent node is no matter of the session."""
    harness = Harness(local_sessions=LocalSessions(1000, may_upgrade=False))
    client = harness.connect()

    def create(path: str, mode: CreateMode) -> int:
        request = OpCode.CREATE, CreateRequest(path, b"", list(OPEN_ACL), mode)
        return client.call(OpCode.MULTI, [request])[0] if in_multi else client.call(*request)[0]

    assert create("/e", CreateMode.EPHEMERAL) == ErrorCode.EPHEMERAL_ON_LOCAL_SESSION
    assert create("/p", CreateMode.PERSISTENT) == 0
    assert set(harness.processor.database.tree.children["/"]) == {"p", "zookeeper"}

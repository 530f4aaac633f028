"""Thousands of sessions and nodes at once: the work for each stays the same, and goes in steps between which others are served.

Work is counted in calls, of C functions too, because times depend on the machine.
"""

import sys
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordination.core.tree import Staged
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL, CreateRequest, CreateTTLRequest, DeleteRequest, SetDataRequest
from support.coordination_processor import Client, Harness

OPEN = list(OPEN_ACL)
EPHEMERAL, CONTAINER = 1, 4


def work_of(action: Callable[[], object]) -> int:
    """The number of calls that it makes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def create(client: Client, path: str, mode: int = 0) -> None:
    opcode = OpCode.CREATE_CONTAINER if mode == CONTAINER else OpCode.CREATE
    assert client.call(opcode, CreateRequest(path, b"", OPEN, mode))[0] == 0


# Ends of sessions


def work_of_expirations(count: int) -> int:
    """The work for so many sessions, each with an ephemeral, that expire together."""
    harness = Harness()
    for number in range(count):
        create(harness.connect(), f"/e{number}", EPHEMERAL)
    harness.now_ms += 100_000
    harness.processor.expirations.tick(harness.now_ms)
    work = work_of(harness.end_due)
    harness.sync()
    assert not harness.processor.tracker.sessions
    assert not harness.processor.database.tree.ephemerals
    return work


def test_ends_of_many_sessions_take_work_in_proportion_to_their_number() -> None:
    """Four times as many take four times the work, though none is committed before the last one is proposed."""
    small = work_of_expirations(50)
    assert work_of_expirations(200) < 4.2 * small


def test_sessions_that_expire_together_end_one_at_a_time_and_are_closing_at_once() -> None:
    """Their clients can neither write nor come back while others are served between two steps; no step ends two of them."""
    harness = Harness()
    silent = [harness.connect() for _ in range(3)]
    for number, client in enumerate(silent):
        create(client, f"/e{number}", EPHEMERAL)
    harness.now_ms += 15_000
    lively, processor = harness.connect(), harness.processor
    processor.expirations.tick(harness.now_ms)
    ends = []
    while processor.propose_due(harness.now_ms, harness.wall_ms):
        ends.append(processor.outstanding)
        silent[2].send(OpCode.CREATE, CreateRequest("/late", b"", OPEN, 0))
        harness.sync()
        create(lively, f"/between{len(ends)}")
    assert ends == [1, 1]
    harness.sync()
    assert [err for _, err, _ in silent[2].take()][-2:] == [ErrorCode.SESSION_EXPIRED] * 2
    assert set(processor.database.tree.children["/"]) == {"between1", "between2", "zookeeper"}
    assert all(client.recorder.is_closed for client in silent)
    assert harness.replayed().tree.digest == processor.database.tree.digest


PATHS = ["/a", "/b", "/c"]


@st.composite
def ephemeral_writes(draw: st.DrawFn) -> tuple[int, object]:
    path, kind = draw(st.sampled_from(PATHS)), draw(st.integers(0, 3))
    if kind < 2:
        return OpCode.CREATE, CreateRequest(path, b"", OPEN, kind)
    if kind == 2:
        return OpCode.DELETE, DeleteRequest(path, -1)
    return OpCode.SET_DATA, SetDataRequest(path, b"x", -1)


def plain_ephemerals(staged: Staged, paths: list[str], session_id: int) -> set[str]:
    nodes = {path: staged.get(path) for path in paths}
    return {path for path, node in nodes.items() if node is not None and node.owner == session_id}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 1), ephemeral_writes()),
            st.tuples(st.integers(0, 1), st.lists(ephemeral_writes(), min_size=2, max_size=4)),
            st.integers(1, 3),  # commit as many
        ),
        max_size=25,
    )
)
def test_staged_ephemerals_are_those_of_a_walk_over_all_nodes(steps: list[object]) -> None:
    """Whatever two sessions create, change and delete in the same places, committed in any groups; also in multis that fail."""
    harness = Harness()
    clients, processor = [harness.connect() for _ in range(2)], harness.processor
    staged = processor._staged
    for step in steps:
        if isinstance(step, int):
            harness.sync(min(step, processor.outstanding))
        else:
            number, request = step
            if isinstance(request, list):
                clients[number].send(OpCode.MULTI, request)
            else:
                clients[number].send(*request)
        for client in clients:
            session_id = client.connection.session_id
            assert staged.ephemerals_of(session_id) == plain_ephemerals(staged, PATHS, session_id)
    harness.sync()
    assert not staged.nodes
    assert not staged._owned, "nothing is kept of what is committed"


# Containers


def test_due_nodes_are_proposed_one_at_a_time_up_to_the_limit_the_oldest_first() -> None:
    """A sweep that is under way is not begun again, and leaves a container that is in use meanwhile."""
    harness = Harness(ttl_nodes=True)
    client, processor = harness.connect(), harness.processor
    for name in "zyx":
        create(client, f"/{name}", CONTAINER)
        create(client, f"/{name}/child")
        client.call(OpCode.DELETE, DeleteRequest(f"/{name}/child", -1))
    assert client.call(OpCode.CREATE_TTL, CreateTTLRequest("/ttl", b"", OPEN, 5, 500))[0] == 0
    harness.wall_ms += 501
    processor.expirations.sweep(harness.wall_ms, 3)
    assert processor.propose_due(harness.now_ms, harness.wall_ms)
    assert processor.outstanding == 1
    create(client, "/y/again")
    processor.expirations.sweep(harness.wall_ms, 1000)
    harness.end_due()
    harness.sync()
    assert set(processor.database.tree.children["/"]) == {"y", "zookeeper"}
    assert not processor.expirations.any


def test_many_nodes_are_looked_at_in_steps() -> None:
    """A step looks at a limited number of nodes that stay, and what a sweep has not reached yet may be deleted meanwhile."""
    harness = Harness()
    client, processor = harness.connect(), harness.processor
    for number in range(350):
        create(client, f"/c{number}", CONTAINER)
    processor.expirations.sweep(harness.wall_ms, 1000)
    steps = 1
    while processor.propose_due(harness.now_ms, harness.wall_ms):
        client.call(OpCode.DELETE, DeleteRequest(f"/c{349 - steps}", -1))
        steps += 1
    assert steps == 4
    assert len(processor.database.tree.containers) == 347

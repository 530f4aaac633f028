"""Members that do anything in any order: what must hold for a group whatever happens."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.broker.groups.group import GroupState
from barnabas.wire.kafka.errors import ErrorCode as E
from support.groups import Answer, World

MEMBERS = st.integers(0, 3)
JOIN_ERRORS = {E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS, E.FENCED_INSTANCE_ID, E.NOT_COORDINATOR} | {
    E.COORDINATOR_NOT_AVAILABLE,
}
FATAL = {E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID}
"""A client that gets one of these errors joins again, without its member id."""


class Client:
    """One process with a consumer in it; odd ones are static members."""

    def __init__(self, number: int) -> None:
        self.instance = f"i{number}" if number % 2 else None
        self.member_id = ""
        self.joined: Any = None
        self.answer: Answer | None = None
        self.sync_answer: Answer | None = None
        self.sync_of: tuple[int, str] = (0, "")


class GroupMachine(RuleBasedStateMachine):
    """A group with four clients, its log and its clock."""

    @initialize(delay=st.sampled_from([0, 3_000]))
    def begin(self, delay: int) -> None:
        self.world = World(initial_rebalance_delay_ms=delay)
        self.clients = [Client(number) for number in range(4)]
        self.answers: list[Answer] = []
        self.assigners: dict[int, str] = {}
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.generation = 0
        self.last_offset = 0
        self.commits: list[tuple[Answer, int, int]] = []

    # What clients do

    @rule(number=MEMBERS, protocol=st.sampled_from([b"a", b"b"]))
    def join(self, number: int, protocol: bytes) -> None:
        client = self.clients[number]
        version = 9 if number < 2 else 3
        answer = self.world.join(
            member_id=client.member_id,
            instance=client.instance,
            protocols=(("range", protocol),),
            version=version,
            rebalance_ms=20_000,
        )
        self.answers.append(answer)
        client.answer, client.joined = answer, None
        self.hear()

    @rule(number=MEMBERS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        joined = client.joined
        if joined is None:
            return
        assignments = {}
        if joined.members and not joined.skip_assignment:
            assignments = {
                member.member_id: f"{joined.generation_id} {member.member_id}".encode() for member in joined.members
            }
            for member in joined.members:
                who = member.group_instance_id or member.member_id
                self.assigned[joined.generation_id, who] = assignments[member.member_id]
        client.sync_answer = self.world.sync(joined, assignments, instance=client.instance)
        client.sync_of = (joined.generation_id, client.instance or joined.member_id)
        self.answers.append(client.sync_answer)
        self.hear()

    @rule(order=st.permutations(range(4)))
    def all_members_join(self, order: list[int]) -> None:
        """Clients that answer to a rebalance at once, as real ones do."""
        for number in order:
            for _ in range(2):  # the first may only bring a member id
                if self.clients[number].answer is None:
                    self.join(number, b"a")

    @rule(order=st.permutations(range(4)), missing=st.integers(0, 4))
    def all_members_sync(self, order: list[int], missing: int) -> None:
        """All but one, perhaps; no member that waits asks twice."""
        for number in order:
            if number != missing and self.clients[number].sync_answer is None:
                self.sync(number)

    @rule(number=MEMBERS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if client.joined is not None:
            error = self.world.heartbeat(client.joined, instance=client.instance)
            assert error in {E.NONE, E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION} | FATAL
            if error in FATAL:
                self.forget(client)

    @rule(number=MEMBERS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id:
            [error] = self.world.leave((client.member_id, client.instance))
            assert error in {E.NONE} | FATAL
            self.forget(client)
            self.hear()

    @rule(number=MEMBERS)
    def lose_the_process(self, number: int) -> None:
        """It comes back without a memory, as a static member under its instance id."""
        client = self.clients[number]
        client.answer = client.sync_answer = None
        self.forget(client)

    @rule(number=MEMBERS, partition=st.integers(0, 1))
    def commit(self, number: int, partition: int) -> None:
        client = self.clients[number]
        if client.joined is None:
            return
        self.last_offset += 1
        answer = self.world.commit({("t", partition): self.last_offset}, client.joined, instance=client.instance)
        self.commits.append((answer, partition, self.last_offset))
        self.hear()

    # What happens to them

    @rule(ms=st.sampled_from([1, 500, 3_000, 9_999, 20_001]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)
        self.hear()

    @precondition(lambda self: self.world.held is None)
    @rule()
    def the_log_slows_down(self) -> None:
        """What is appended from now on is not committed yet."""
        self.world.hold()

    @precondition(lambda self: self.world.held is not None)
    @rule()
    def the_log_catches_up(self) -> None:
        self.world.release()
        self.hear()

    @rule()
    def move_the_coordinator(self) -> None:
        self.world.release()
        self.hear()
        self.world.reload()
        group = self.world.coordinator.find("g")
        # Generations that were never stored are gone; no client was given an assignment in one.
        self.generation = group.generation_id if group else 0
        for key in [key for key in self.assigned if key[0] > self.generation]:
            del self.assigned[key]
        self.assigners = {number: who for number, who in self.assigners.items() if number <= self.generation}
        for client in self.clients:
            if client.joined is not None and client.joined.generation_id > self.generation:
                client.joined = None
        self.hear()

    @precondition(lambda self: self.world.state() == "Empty" and self.world.held is None)
    @rule()
    def delete_the_group(self) -> None:
        answer = self.world.delete_groups("g")
        assert answer.response.results[0].error_code == E.NONE
        self.committed.clear()
        self.assigned.clear()
        self.assigners.clear()
        self.generation = 0

    # What clients hear

    def forget(self, client: Client) -> None:
        client.member_id, client.joined = "", None

    def hear(self) -> None:
        for answer, partition, offset in self.commits:
            if not answer.waits and answer.response.topics[0].partitions[0].error_code == E.NONE:
                self.committed["t", partition] = offset
        self.commits = [commit for commit in self.commits if commit[0].waits]
        for client in self.clients:
            if client.answer is not None and not client.answer.waits:
                answer, client.answer = client.answer, None
                self.hear_joined(client, answer)
            if client.sync_answer is not None and not client.sync_answer.waits:
                answer, client.sync_answer = client.sync_answer, None
                if answer.error == E.NONE:
                    assert answer.response.assignment == self.assigned.get(client.sync_of, b"")

    def hear_joined(self, client: Client, answer: Answer) -> None:
        response = answer.response
        if answer.error == E.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif answer.error == E.NONE:
            client.member_id, client.joined = response.member_id, response
            if response.members and not response.skip_assignment:
                known = self.assigners.setdefault(response.generation_id, response.member_id)
                assert known == response.member_id, "two members were asked to assign in one generation"
                assert response.leader == response.member_id
        else:
            assert answer.error in JOIN_ERRORS
            if answer.error in FATAL:
                self.forget(client)

    # What must hold

    @invariant()
    def generations_do_not_go_back(self) -> None:
        group = self.world.coordinator.find("g") if hasattr(self, "world") else None
        if group is not None:
            assert group.generation_id >= self.generation
            self.generation = group.generation_id

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        if hasattr(self, "world"):
            assert self.world.offsets() == self.committed

    @invariant()
    def books_agree(self) -> None:
        group = self.world.coordinator.find("g") if hasattr(self, "world") else None
        if group is None:
            return
        members = group.members
        assert group.awaiting_join == sum(member.join_reply is not None for member in members.values())
        assert group.pending_sync <= members.keys()
        assert set(group.static_members.values()) == {m.member_id for m in members.values() if m.group_instance_id}
        assert not group.pending_members & members.keys()
        assert (group.leader_id in members) == bool(members)
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state is GroupState.STABLE:
            assert members
            assert all(member.sync_reply is None for member in members.values())

    def teardown(self) -> None:
        """No request waits for ever, and nothing is left of removed members."""
        if hasattr(self, "world"):
            self.world.release()
            self.world.advance(3_600_000)
            assert not [answer for answer in self.answers if answer.waits]
            assert self.world.state() in ("Empty", "none")
            assert len(self.world.coordinator._timers) == 0


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

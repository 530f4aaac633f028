"""The election of the registry's leader: what members say, who is chosen, and what an answer of the
coordinator makes of a membership."""

import json

import pytest

from barnabas.registry.storage.identity import DUPLICATE_URLS, LeaderAssignment, RegistryIdentity, assign
from barnabas.registry.storage.membership import (
    GroupTimeouts,
    MembershipRefusedError,
    MembershipState,
    RegistryMembership,
)
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

A = RegistryIdentity("a", 8081)
B = RegistryIdentity("b", 8081)
SESSION_MS = 10_000


def leading(identity: RegistryIdentity) -> RegistryIdentity:
    return RegistryIdentity(identity.host, identity.port, identity.is_eligible, identity.scheme, is_leader=True)


class TestIdentity:
    def test_is_written_as_confluents_instances_write_it(self) -> None:
        """The names of the fields are those that theirs read."""
        assert json.loads(RegistryIdentity("h", 1, is_eligible=False, scheme="https").encode()) == {
            "version": 1,
            "host": "h",
            "port": 1,
            "master_eligibility": False,
            "scheme": "https",
            "leader": False,
        }

    def test_of_an_older_instance_without_scheme_is_http(self) -> None:
        """Fields that are not there have their defaults, and unknown ones are left out."""
        found = RegistryIdentity.decode(b'{"version":1,"host":"h","port":2,"master_eligibility":true,"more":1}')
        assert found == RegistryIdentity("h", 2)
        assert found.url == "http://h:2"

    @pytest.mark.parametrize(
        "data", [b"", b"{}", b"[]", b'{"host":"h","port":0,"master_eligibility":true}', b'{"host":"h","port":"x"}']
    )
    def test_that_is_none_is_refused(self, data: bytes) -> None:
        """What another protocol's member says is no identity."""
        with pytest.raises(ValueError, match="no identity|Expecting"):
            RegistryIdentity.decode(data)

    def test_address_of_ip_6_has_brackets(self) -> None:
        """The URL can be used as it is."""
        assert RegistryIdentity("::1", 80).url == "http://[::1]:80"


class TestAssignment:
    def test_is_written_as_confluents_instances_write_it(self) -> None:
        """Theirs read the member and its identity under the old names."""
        found = json.loads(LeaderAssignment(0, "m", A).encode())
        assert found["error"] == 0
        assert found["master"] == "m"
        assert found["master_identity"]["host"] == "a"

    @pytest.mark.parametrize(
        "assignment", [LeaderAssignment(), LeaderAssignment(DUPLICATE_URLS), LeaderAssignment(0, "m", A)]
    )
    def test_is_read_back(self, assignment: LeaderAssignment) -> None:
        """What the elector says is what each member understands."""
        assert LeaderAssignment.decode(assignment.encode()) == assignment


class TestAssign:
    def test_smallest_url_leads(self) -> None:
        """Every member that assigns comes to the same."""
        assert assign({"1": B.encode(), "2": A.encode()}).leader == A

    def test_leader_stays_when_a_smaller_one_joins(self) -> None:
        """A rebalance alone moves nothing."""
        assert assign({"1": leading(B).encode(), "2": A.encode()}).leader_member == "1"

    def test_smallest_leads_when_two_say_that_they_lead(self) -> None:
        """Which of them is right is not known."""
        assert assign({"1": leading(B).encode(), "2": leading(A).encode()}).leader_member == "2"

    def test_member_that_may_not_lead_is_passed_over(self) -> None:
        """A follower by its settings never writes."""
        follower = RegistryIdentity("a", 1, is_eligible=False)
        assert assign({"1": follower.encode(), "2": B.encode()}).leader == B
        assert assign({"1": follower.encode()}) == LeaderAssignment()

    def test_member_that_is_not_understood_never_leads(self) -> None:
        """The others agree without it."""
        assert assign({"1": b"\x00", "2": B.encode()}).leader == B

    def test_two_members_with_one_address_are_an_error(self) -> None:
        """Requests could not be forwarded to the right one."""
        assert assign({"1": A.encode(), "2": A.encode()}).error == DUPLICATE_URLS


class Member:
    """A membership, with the coordinator's answers."""

    def __init__(self) -> None:
        self.membership = RegistryMembership("g", A, GroupTimeouts(SESSION_MS, 30_000, 3000))
        self.now_ms = 1000

    def answer(self, response: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse, sent_ms: int = -1) -> None:
        self.membership.answered(response, self.now_ms if sent_ms < 0 else sent_ms, self.now_ms)

    def join(self, *, assigned_to: str = "me", generation: int = 1) -> None:
        self.answer(JoinGroupResponse(generation_id=generation, member_id="me", leader="other"))
        identity = A if assigned_to == "me" else B
        self.answer(SyncGroupResponse(assignment=LeaderAssignment(0, assigned_to, identity).encode()))


class TestMembership:
    def test_asks_for_an_id_joins_syncs_and_says_that_it_is_there(self) -> None:
        """Each answer leads to the next request."""
        member = Member()
        membership = member.membership
        assert isinstance(membership.request(), JoinGroupRequest)
        member.answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
        request = membership.request()
        assert isinstance(request, JoinGroupRequest)
        assert (request.member_id, request.protocol_type, request.protocols[0].name) == ("me", "sr", "v0")
        member.answer(JoinGroupResponse(generation_id=4, member_id="me", leader="other"))
        request = membership.request()
        assert isinstance(request, SyncGroupRequest)
        assert (request.generation_id, request.assignments) == (4, [])
        member.answer(SyncGroupResponse(assignment=LeaderAssignment(0, "other", B).encode()))
        assert isinstance(membership.request(), HeartbeatRequest)
        assert membership.wait_ms(member.now_ms) == 3000
        assert membership.leader() == B
        assert not membership.leads(member.now_ms)

    def test_that_the_coordinator_chose_assigns_for_all(self) -> None:
        """Every member gets the same assignment."""
        member = Member()
        members = [
            JoinGroupResponseMember(member_id="me", metadata=A.encode()),
            JoinGroupResponseMember(member_id="other", metadata=B.encode()),
        ]
        member.answer(JoinGroupResponse(generation_id=1, member_id="me", leader="me", members=members))
        request = member.membership.request()
        assert isinstance(request, SyncGroupRequest)
        assert {each.member_id for each in request.assignments} == {"me", "other"}
        assert {LeaderAssignment.decode(each.assignment).leader_member for each in request.assignments} == {"me"}

    def test_leads_until_the_session_ends_without_an_answer(self) -> None:
        """From then on the coordinator may have given the lead to another one."""
        member = Member()
        member.join()
        assert member.membership.leads(1000 + SESSION_MS - 1)
        member.membership.failed(2000)
        assert member.membership.leads(2000)
        assert not member.membership.leads(1000 + SESSION_MS)

    def test_heartbeat_extends_the_lead_from_when_it_was_sent(self) -> None:
        """An answer that comes late says nothing of the time since."""
        member = Member()
        member.join()
        member.now_ms = 9000
        member.answer(HeartbeatResponse(), sent_ms=5000)
        assert member.membership.lease_end_ms == 5000 + SESSION_MS

    def test_leader_says_so_when_it_joins_again(self) -> None:
        """So the one that assigns lets it stay."""
        member = Member()
        member.join()
        member.answer(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        request = member.membership.request()
        assert isinstance(request, JoinGroupRequest)
        assert RegistryIdentity.decode(request.protocols[0].metadata).is_leader
        assert member.membership.leads(member.now_ms)  # until there is another assignment

    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
    def test_that_the_group_dropped_does_not_lead(self, code: ErrorCode) -> None:
        """Another one may lead already."""
        member = Member()
        member.join()
        member.answer(HeartbeatResponse(error_code=code))
        assert not member.membership.leads(member.now_ms)
        assert member.membership.leader() is None
        assert member.membership.state is MembershipState.JOINING

    def test_looks_the_coordinator_up_when_it_moved(self) -> None:
        """The group is as it was, elsewhere."""
        member = Member()
        member.join()
        member.membership.needs_coordinator = False
        member.answer(HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
        assert member.membership.needs_coordinator
        assert isinstance(member.membership.request(), HeartbeatRequest)
        assert member.membership.wait_ms(member.now_ms) > 0

    def test_without_the_right_to_the_group_is_refused_and_tries_later(self) -> None:
        """A right may be given while the instance runs."""
        member = Member()
        with pytest.raises(MembershipRefusedError):
            member.answer(JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        assert member.membership.wait_ms(member.now_ms) >= 1000

    @pytest.mark.parametrize("data", [b"", b"\xff", LeaderAssignment(DUPLICATE_URLS, "me", A).encode()])
    def test_with_an_assignment_of_no_use_knows_no_leader(self, data: bytes) -> None:
        """An assignment that is damaged, or that has an error, lets no instance write."""
        member = Member()
        member.answer(JoinGroupResponse(generation_id=1, member_id="me", leader="other"))
        member.answer(SyncGroupResponse(assignment=data))
        assert not member.membership.leads(member.now_ms)
        assert member.membership.leader() is None

    def test_that_left_joins_as_a_new_one_and_does_not_lead(self) -> None:
        """The group agrees again."""
        member = Member()
        member.join()
        member.membership.left()
        request = member.membership.request()
        assert isinstance(request, JoinGroupRequest)
        assert request.member_id == ""
        assert not member.membership.leads(member.now_ms)

    def test_leaves_in_the_form_of_the_version(self) -> None:
        """Old brokers know one member only."""
        member = Member()
        assert member.membership.leave_request(5) is None
        member.join()
        old, new = member.membership.leave_request(2), member.membership.leave_request(3)
        assert old is not None
        assert (old.member_id, old.members) == ("me", [])
        assert new is not None
        assert [each.member_id for each in new.members] == ["me"]

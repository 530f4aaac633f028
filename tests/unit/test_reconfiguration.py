"""Reconfigurations without I/O: what a request makes of a configuration, quorums, files,
and a member's next role."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.configuration_files import ConfigurationFiles, read_zoo_cfg
from barnabas.coordination.quorum.reconfiguration import plan_reconfiguration
from barnabas.coordination.zab.configurations import Configurations
from barnabas.coordination.zab.quorums import Quorums
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.records import ReconfigRequest

CONFIG = "/conf/zoo.cfg"


def configuration(*voters: int, observers: tuple[int, ...] = (), version: int = 0) -> QuorumConfiguration:
    """Servers with addresses of their own."""
    texts = {f"server.{n}": f"10.0.0.{n}:2888:3888;2181" for n in voters}
    texts |= {f"server.{n}": f"10.0.0.{n}:2888:3888:observer;2181" for n in observers}
    return QuorumConfiguration.parse(texts).with_version(version)


class MemoryFiles:
    """What the configuration needs of a file system."""

    def __init__(self, **content: bytes) -> None:
        self.content: dict[str, bytes] = dict(content)

    def exists(self, path: str) -> bool:
        return path in self.content

    def read(self, path: str) -> bytes:
        return self.content[path]

    def write_atomically(self, path: str, data: bytes) -> None:
        self.content[path] = bytes(data)

    def remove(self, path: str) -> None:
        del self.content[path]


def member(my_id: int, current: QuorumConfiguration) -> tuple[Configurations, MemoryFiles]:
    """A member with its files."""
    files = MemoryFiles(**{CONFIG: b"# ours\ntickTime=2000\nclientPort=2181\nserver.1=x\nserver.2=\\\n  y\n"})
    return Configurations(my_id, current, ConfigurationFiles(files, CONFIG)), files  # type: ignore[arg-type]  # what it needs


def plan(current: QuorumConfiguration, **request: object) -> QuorumConfiguration:
    """The configuration that a request makes at zxid 77."""
    given_request = {
        "joining_servers": None,
        "leaving_servers": None,
        "new_members": None,
        "cur_config_id": -1,
        **request,
    }
    return plan_reconfiguration(ReconfigRequest(**given_request), current, 77, least_voters=2)  # type: ignore[arg-type]


def test_servers_join_leave_and_change_their_roles_in_one_request() -> None:
    """Those that leave go first; a line of a member replaces the one before."""
    planned = plan(
        configuration(1, 2, 3),
        joining_servers="server.4=10.0.0.4:1:2;3, server.2=10.0.0.2:2888:3888:observer;2181",
        leaving_servers="1,9",
    )
    assert (planned.voters, planned.observers, planned.version) == ({3, 4}, {2}, 77)


def test_a_server_joins_whose_id_is_above_that_of_any_that_can_run() -> None:
    """Apache's leader takes the line as well: the server's own start is what refuses such an id."""
    assert plan(configuration(1, 2, 3), joining_servers="server.999=10.0.0.9:1:2:observer;3").observers == {999}


def test_groups_change_as_a_whole_only() -> None:
    """Incremental changes are for majorities."""
    lines = ",".join(f"server.{n}=10.0.0.{n}:1:2;3" for n in (1, 2, 3)) + ",group.1=1:2,group.2=3,weight.3=2"
    grouped = plan(configuration(1, 2, 3), new_members=lines)
    assert grouped.text().endswith("group.1=1:2\ngroup.2=3\nweight.1=1\nweight.2=1\nweight.3=2\nversion=4d")
    with pytest.raises(KeeperError) as refused:
        plan(grouped, leaving_servers="1")
    assert refused.value.code is ErrorCode.BAD_ARGUMENTS


@given(
    st.sets(st.integers(1, 6), min_size=1),
    st.sets(st.integers(1, 6), min_size=1),
    st.dictionaries(st.integers(1, 6), st.integers(1, 9)),
)
def test_a_reconfiguration_and_what_follows_it_need_both_quorums(
    old: set[int], new: set[int], acked: dict[int, int]
) -> None:
    """Against the definition: a zxid is committable when a majority of each
    configuration in force for it has it."""
    quorums = Quorums(configuration(*old))
    quorums.propose(5, configuration(*new, version=5))
    acks = sorted(((zxid, server) for server, zxid in acked.items()), reverse=True)

    def has(zxid: int, voters: set[int]) -> bool:
        return 2 * sum(acked.get(voter, 0) >= zxid for voter in voters) > len(voters)

    may = [zxid for zxid in range(1, 10) if has(zxid, old) and (zxid < 5 or has(zxid, new))]
    expected = min(max(may, default=0), 5)
    assert max(quorums.committable(acks, 1), 0) == expected


def test_any_two_quorums_of_a_change_meet_in_the_old_and_in_the_new_configuration() -> None:
    """So no leader of either can miss what was committed under both."""
    quorums = Quorums(configuration(1, 2, 3))
    quorums.propose(5, configuration(3, 4, 5, version=5))
    joint = [
        set(each) for size in range(6) for each in combinations(range(1, 6), size) if quorums.contains_quorum(each)
    ]
    assert joint
    for one, other in combinations(joint, 2):
        assert one & other & {1, 2, 3}
        assert one & other & {3, 4, 5}


@pytest.mark.parametrize(
    ("new", "acks", "leader"),
    [
        ((1, 2, 4), [(9, 2), (9, 4)], 1),
        ((2, 3, 4), [(5, 2), (7, 3), (7, 4)], 3),
        ((2, 3), [(4, 2), (5, 3)], 3),
    ],
    ids=["the leader stays", "the most recent, then the least id", "one that has not acknowledged it is not able"],
)
def test_the_leader_of_a_new_configuration(new: tuple[int, ...], acks: list[tuple[int, int]], leader: int) -> None:
    """The present leader if it is a voter of it, otherwise the voter that has most."""
    quorums = Quorums(configuration(1, 2, 3))
    quorums.propose(5, configuration(*new, version=5))
    assert quorums.activate(1, acks, 5) == leader
    assert (quorums.current.voters, quorums.following) == (set(new), None)


def test_a_proposed_configuration_survives_a_restart_until_it_is_in_force() -> None:
    """The file beside zoo.cfg has it; zoo.cfg names the dynamic file, keeps its other
    lines, and is copied first."""
    known, files = member(2, configuration(1, 2, 3))
    known.load()
    assert files.content[f"{CONFIG}.bak"].startswith(b"# ours")
    proposed = configuration(2, 3, 4, version=0x1F)
    known.see(proposed)
    again = Configurations(2, configuration(1, 2, 3), ConfigurationFiles(files, CONFIG))  # type: ignore[arg-type]
    again.load()
    assert again.following == proposed
    assert again.activate(proposed, 2, 2) is False
    assert (again.current, again.following) == (proposed, None)
    assert sorted(files.content) == [CONFIG, f"{CONFIG}.bak", f"{CONFIG}.dynamic.1f"]
    assert files.content[CONFIG] == b"# ours\ntickTime=2000\ndynamicConfigFile=/conf/zoo.cfg.dynamic.1f\n"
    texts = read_zoo_cfg(files.read, CONFIG)
    assert (texts["version"], texts["server.4"]) == ("1f", "10.0.0.4:2888:3888:participant;0.0.0.0:2181")


def lines_of(files: MemoryFiles, path: str) -> list[str]:
    """The lines of a file that set something."""
    return [line for line in files.content[path].decode().splitlines() if "=" in line]


def test_a_proposal_that_is_given_up_is_forgotten() -> None:
    """The next leader says which configuration was proposed last."""
    known, files = member(2, configuration(1, 2, 3, version=1))
    known.see(configuration(1, 2, version=9))
    known.see(configuration(1, 2, 3, version=1))
    assert known.following is None
    assert f"{CONFIG}.dynamic.next" not in files.content


@pytest.mark.parametrize(
    ("new", "leader", "ends", "suggested"),
    [
        (configuration(1, 2, 3, 4, version=5), 1, False, None),
        (configuration(2, 3, version=5), 3, True, 3),
        (configuration(1, 3, observers=(2,), version=5), 1, True, 1),
        (configuration(1, 3, version=5), 1, False, None),
        (configuration(2, 3, version=5), None, True, None),
    ],
    ids=["one joins", "the leader leaves", "it becomes an observer", "it is removed", "NEWLEADER names another leader"],
)
def test_what_a_configuration_means_for_a_follower(
    new: QuorumConfiguration, leader: int | None, ends: bool, suggested: int | None
) -> None:
    """Server 2 follows server 1: its role ends when its leader or its own role changes."""
    known, _ = member(2, configuration(1, 2, 3))
    assert known.activate(new, leader, 1) is ends
    assert known.take_suggested_leader() == suggested

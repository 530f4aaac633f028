"""The configuration of an ensemble: server lines, quorums, dynamic files, and what
zoo.cfg says of them."""

import asyncio
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.coordination.quorum.configuration import QuorumConfiguration, parse_dynamic_text
from barnabas.coordination.quorum.configuration_files import merge_dynamic_texts
from barnabas.coordination.quorum.members import HostAndPort, LearnerType, QuorumServer
from barnabas.coordination.quorum.verifiers import AckTracker, HierarchicalQuorum, MajorityQuorum
from barnabas.coordination.server.peer_config import client_endpoint, parse_my_id
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import ensemble_of, ineffective_lines, parse_settings, quorum_of

BASE = {"dataDir": "/d", "clientPort": "2181", "initLimit": "5", "syncLimit": "2"}
THREE = {f"server.{number}": f"zoo{number}:2888:3888" for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zoo1:2888:3888", QuorumServer(1, "zoo1", 2888, 3888)),
        ("zoo1:2888:3888:observer", QuorumServer(1, "zoo1", 2888, 3888, LearnerType.OBSERVER)),
        ("zoo1:2888:3888:PARTICIPANT;2181", QuorumServer(1, "zoo1", 2888, 3888, client=HostAndPort("0.0.0.0", 2181))),
        ("zoo1:2888:3888;10.0.0.1:2181", QuorumServer(1, "zoo1", 2888, 3888, client=HostAndPort("10.0.0.1", 2181))),
        ("[::1]:2888:3888;[::]:2181", QuorumServer(1, "::1", 2888, 3888, client=HostAndPort("::", 2181))),
    ],
)
def test_a_server_line_gives_addresses_role_and_client_port(text: str, expected: QuorumServer) -> None:
    """Every form that ZooKeeper takes; the written form is read again as the same member."""
    server = QuorumServer.parse(1, text)
    assert server == expected
    assert QuorumServer.parse(1, server.text()) == server


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("zoo1", "does not have the form"),
        ("zoo1:2888", "does not have the form"),
        ("zoo1:2888:3888:observer:x", "does not have the form"),
        (":2888:3888", "does not have the form"),
        ("zoo1:2888:3888:leader", "unrecognised peer type leader"),
        ("zoo1:2888:70000", "70000 is not a port"),
        ("zoo1:-1:3888", "-1 is not a port"),
        ("zoo1:2888:3888;a:b:c", "does not have the form"),
        ("zoo1:2888:3888;x", "x is not a port"),
        ("zoo1:2888:2888", "must be different"),
        ("zoo1:2888:3888;2888", "must differ"),
        ("zoo1:2888:3888|zoo1b:2888:3888", "multiAddress is not supported"),
        ("[::1:2888:3888", "does not have the form"),
    ],
)
def test_a_server_line_that_cannot_be_used_is_refused_by_name(text: str, what: str) -> None:
    """The error has the whole line and what is wrong with it."""
    with pytest.raises(ConfigError, match=what) as refused:
        QuorumServer.parse(7, text)
    assert f"server.7={text}" in str(refused.value)


def test_the_text_of_a_configuration_is_that_of_apache_zookeeper() -> None:
    """Members in the order of their ids with their roles, then groups and weights, then
    the version in hexadecimal."""
    texts = {
        "server.2": "b:2:3:observer",
        "server.1": "a:2888:3888;2181",
        "server.10": "c:1:2",
        "version": "100000000",
    }
    majority = QuorumConfiguration.parse(texts)
    lines = "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2:3:observer\nserver.10=c:1:2:participant\n"
    assert majority.text() == lines + "version=100000000"
    assert majority.file_text() == "\n".join(sorted(lines.splitlines()))
    assert (majority.voters, majority.observers, majority.version) == ({1, 10}, {2}, 1 << 32)
    assert parse_dynamic_text(majority.text()) == majority
    hierarchical = QuorumConfiguration.parse({**THREE, "group.1": "1:2", "group.2": "3", "weight.1": "4"})
    assert hierarchical.text().endswith("group.1=1:2\ngroup.2=3\nweight.1=4\nweight.2=1\nweight.3=1\nversion=0")
    assert parse_dynamic_text(hierarchical.text()) == hierarchical


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        ({}, "1 to 256 servers"),
        ({"server.x": "a:1:2"}, "server.x: x is not a number"),
        ({**THREE, "group.1": "1:2"}, "server 3 is not in a group"),
        ({**THREE, "weight.1": "2"}, "server 1 is not in a group"),
        ({**THREE, "group.1": "1:2:3", "group.2": "3"}, "server 3 is in more than one group"),
        ({**THREE, "group.1": "1:2:3:4"}, "server 4 has a group or a weight"),
        ({**THREE, "group.1": "1:2:3", "weight.2": "-1"}, "weight.2: -1 is not a number"),
        ({**THREE, "version": "xyz"}, "not a hexadecimal number"),
        ({**THREE, "tickTime": "1"}, "tickTime is not a parameter"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(texts: dict[str, str], what: str) -> None:
    """The error names the server or the line."""
    with pytest.raises(ConfigError, match=what):
        QuorumConfiguration.parse(texts)


def test_a_majority_is_more_than_half_of_the_voters() -> None:
    """Servers without a vote, and those counted twice, change nothing."""
    quorum = MajorityQuorum(frozenset((1, 2, 3, 4)))
    assert not quorum.contains_quorum([1, 2, 2, 9])
    assert quorum.contains_quorum({1, 2, 4})


@st.composite
def hierarchies(draw: st.DrawFn) -> HierarchicalQuorum:
    weights = draw(st.dictionaries(st.integers(1, 9), st.integers(0, 5), min_size=1))
    groups: dict[int, frozenset[int]] = {}
    for server_id in weights:
        group = draw(st.integers(1, 4))
        groups[group] = groups.get(group, frozenset()) | {server_id}
    return HierarchicalQuorum(groups, weights)


@given(hierarchies())
def test_two_quorums_of_a_hierarchy_have_a_common_member(quorum: HierarchicalQuorum) -> None:
    """The property that all of Zab rests on, for every set of servers and its complement."""
    voters = sorted(quorum.voters)
    for size in range(len(voters) + 1):
        for some in combinations(voters, size):
            others = set(voters) - set(some)
            assert not (quorum.contains_quorum(some) and quorum.contains_quorum(others))
    if any(quorum.weights.values()):
        assert quorum.contains_quorum(voters)


def test_groups_count_by_weight_and_a_group_without_weight_does_not_count() -> None:
    """Two of three groups are enough, each with more than half of its weight."""
    texts = {f"server.{number}": f"h{number}:1:2" for number in range(1, 10)}
    texts |= {"group.1": "1:2:3", "group.2": "4:5:6", "group.3": "7:8:9", "weight.1": "3"}
    quorum = QuorumConfiguration.parse(texts).verifier
    assert quorum.contains_quorum({1, 4, 5})
    assert not quorum.contains_quorum({2, 3, 4, 5})
    assert not quorum.contains_quorum({1, 2, 3, 4, 7})
    weightless = QuorumConfiguration.parse({**texts, "weight.7": "0", "weight.8": "0", "weight.9": "0"}).verifier
    assert not weightless.contains_quorum({1, 7, 8, 9})
    assert weightless.contains_quorum({1, 4, 5})
    assert (weightless.weight(1), weightless.weight(7), weightless.weight(99)) == (3, 0, 0)


def test_during_a_change_a_decision_needs_a_quorum_of_both_configurations() -> None:
    """Acknowledgements of servers that only one of them names count for that one."""
    tracker = AckTracker([MajorityQuorum(frozenset((1, 2, 3))), MajorityQuorum(frozenset((3, 4, 5)))], [1, 2])
    assert not tracker.has_all_quorums()
    tracker.add(4)
    assert not tracker.has_all_quorums()
    tracker.add(5)
    assert tracker.has_all_quorums()


def test_several_voters_are_an_ensemble_and_one_is_a_server_alone() -> None:
    """Unless standaloneEnabled is false; observers without enough participants are refused."""
    ensemble = ensemble_of(parse_settings({**BASE, **THREE}))
    assert ensemble is not None
    assert ensemble.voters == {1, 2, 3}
    assert ineffective_lines(parse_settings({**BASE, **THREE})) == []
    alone = {**BASE, "server.1": "a:1:2"}
    assert ensemble_of(parse_settings(alone)) is None
    assert ensemble_of(parse_settings({**alone, "standaloneEnabled": "false"})) is not None
    with pytest.raises(ConfigError, match="one participant with observers"):
        parse_settings({**alone, "server.2": "b:1:2:observer"})
    with pytest.raises(ConfigError, match="observers without a participant"):
        parse_settings({**BASE, "server.2": "b:1:2:observer"})


@pytest.mark.parametrize("name", ["initLimit", "syncLimit"])
def test_a_member_needs_its_limits(name: str) -> None:
    """They have no default in ZooKeeper either."""
    texts = {**BASE, **THREE}
    del texts[name]
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        parse_settings(texts)


def test_a_dynamic_file_gives_the_servers_and_its_name_the_version() -> None:
    """Server lines beside it, other settings in it, and a file without servers are refused."""
    static = {**BASE, "dynamicConfigFile": "/conf/zoo.cfg.dynamic.100000003"}
    merged = merge_dynamic_texts(static, static["dynamicConfigFile"], THREE)
    ensemble = ensemble_of(parse_settings(merged))
    assert ensemble is not None
    assert (ensemble.version, ensemble.voters) == (0x100000003, {1, 2, 3})
    assert merge_dynamic_texts(static, "/conf/zoo.cfg.dynamic", THREE).get("version") is None
    with pytest.raises(ConfigError, match="server.1 must be in the file"):
        merge_dynamic_texts({**static, **THREE}, "f", THREE)
    with pytest.raises(ConfigError, match="f sets tickTime"):
        merge_dynamic_texts(static, "f", {**THREE, "tickTime": "1"})
    with pytest.raises(ConfigError, match="has no server.N lines"):
        parse_settings(static)


def endpoint(values: Values, my_id: int) -> HostAndPort | None:
    return client_endpoint(values, quorum_of(values), my_id)


def test_the_client_port_comes_from_clientport_or_from_the_server_line() -> None:
    """Both may name it if they agree."""
    lines = {**THREE, "server.1": "zoo1:2888:3888;2181"}
    values = parse_settings({**BASE, **lines})
    assert endpoint(values, 1) == endpoint(values, 2) == HostAndPort("0.0.0.0", 2181)
    other = parse_settings({**BASE, **lines, "clientPort": "2182"})
    assert endpoint(other, 2) == HostAndPort("0.0.0.0", 2182)
    with pytest.raises(ConfigError, match="the line server.1 names 0.0.0.0:2181"):
        endpoint(other, 1)
    without = {name: text for name, text in {**BASE, **lines}.items() if name != "clientPort"}
    assert endpoint(parse_settings(without), 1) == HostAndPort("0.0.0.0", 2181)
    assert endpoint(parse_settings(without), 2) is None
    with pytest.raises(ConfigError, match="clientPort"):
        parse_settings({"dataDir": "/d"})


def test_my_id_is_a_number_of_one_byte() -> None:
    """It becomes the highest byte of session ids."""
    assert parse_my_id("12\n") == 12
    for text in ("", "a", "-1", "256", "1 2"):
        with pytest.raises(ConfigError, match="the file myid"):
            parse_my_id(text)


@pytest.mark.parametrize(
    ("my_id", "what"),
    [(None, "myid is missing"), ("x", "the file myid has 'x'"), ("7", "there is no line server.7")],
)
def test_a_member_without_a_usable_id_does_not_start(tmp_path: Path, my_id: str | None, what: str) -> None:
    """The file myid in the data directory must have the number of one of the server lines."""
    if my_id is not None:
        (tmp_path / "myid").write_text(my_id)
    server = CoordinationServer(parse_settings({**BASE, **THREE, "dataDir": str(tmp_path)}))
    with pytest.raises(ConfigError, match=what):
        asyncio.run(server.start())


def test_an_ensemble_has_256_servers_at_most() -> None:
    """A client's reconfiguration could name as many as a request holds."""
    texts = {f"server.{n}": f"10.0.{n // 256}.{n % 256}:2888:3888;2181" for n in range(1, 258)}
    with pytest.raises(ConfigError, match="1 to 256 servers"):
        QuorumConfiguration.parse(texts)
    del texts["server.257"]
    assert len(QuorumConfiguration.parse(texts).servers) == 256

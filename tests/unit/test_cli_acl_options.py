"""``barnabas acls``: what its options stand for, and what it refuses before anything is sent."""

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import BarnabasError
from barnabas.cli.acls import acls
from barnabas.client.admin.acl_options import acl_commands
from barnabas.client.admin.acls import Acl
from barnabas.security.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, ResourceType
from barnabas.testing.security import acls_of_text

BROKER = ["--bootstrap-server", "localhost:1"]
ANN = ["--allow-principal", "User:ann"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*BROKER], "Command must include exactly one action: --list, --add, --remove, --suggest."),
        ([*BROKER, "--list", "--add"], "exactly one action"),
        (["--list"], 'Missing required argument "[bootstrap-server]"'),
        (["--suggest"], 'Missing required argument "[audit-log]"'),
        ([*BROKER, "--list", "--fold-prefixes"], "--audit-log and --fold-prefixes belong to --suggest"),
        ([*BROKER, "--list", *ANN], 'Option "[list]" can\'t be used with option "[allow-principal]"'),
        ([*BROKER, "--list", "--producer"], 'Option "[list]" can\'t be used with option "[producer]"'),
        ([*BROKER, "--add", *ANN, "--producer", "--topic", "t", "--operation", "Read"], '"[producer]" can\'t be used'),
        ([*BROKER, "--add", "--deny-principal", "User:a", "--consumer", "--topic", "t", "--group", "g"], '"[consumer]"'),
        ([*BROKER, "--add", "--principal", "User:ann"], "--principal option is only available if --list is set"),
        ([*BROKER, "--add", *ANN, "--producer"], "With --producer you must specify a --topic"),
        ([*BROKER, "--add", *ANN, "--idempotent", "--topic", "t"], "only available if --producer is set"),
        ([*BROKER, "--add", *ANN, "--consumer", "--topic", "t"], "With --consumer you must specify a --topic and a --group"),
        ([*BROKER, "--add", *ANN, "--consumer", "--topic", "t", "--group", "g", "--cluster"], "no --cluster"),
        ([*BROKER, "--add", *ANN, "--topic", "t", "--resource-pattern-type", "match"], "'MATCH' is not valid when adding"),
        ([*BROKER, "--add", *ANN, "--topic", "t", "--resource-pattern-type", "like"], "like: literal, prefixed, any or"),
        ([*BROKER, "--add", "--topic", "t"], "You must specify one of: --allow-principal, --deny-principal"),
        ([*BROKER, "--add", *ANN], "You must provide at least one resource"),
        ([*BROKER, "--add", *ANN, "--group", "g", "--operation", "Write"], "GROUP only supports operations All, Read"),
        ([*BROKER, "--add", *ANN, "--topic", "t", "--operation", "Reed"], "did you mean Read?"),
        ([*BROKER, "--add", "--allow-principal", "ann", "--topic", "t"], "principalType:principalName but got ann"),
        ([*BROKER, "--list", "--authorizer-properties", "zookeeper.connect=localhost:1"], "can only be used with --authorizer"),
        ([*BROKER, "--list", "--authorizer", "kafka.security.authorizer.AclAuthorizer"], "Only one of --bootstrap-server"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and a line that says why, in the words of Kafka's tool."""
    with pytest.raises(SystemExit) as stop:
        acls.main(argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_options_stand_for_every_combination() -> None:
    """Each principal, host and operation on each resource."""
    text = (
        "--allow-principal User:ann --allow-principal 'User:CN=bob,O=x' --allow-host 10.0.0.1 --allow-host ::1 "
        "--operation Read --operation describe_configs --topic a --topic b --resource-pattern-type prefixed"
    )
    found = acls_of_text(text)
    assert len(found) == len(set(found)) == 16
    assert Acl("TOPIC", "a", "User:CN=bob,O=x", "DESCRIBE_CONFIGS", host="::1", pattern_type="PREFIXED") in found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "--allow-principal User:a --producer --topic t --transactional-id x",
            [("TOPIC", "t", "WRITE"), ("TOPIC", "t", "DESCRIBE"), ("TOPIC", "t", "CREATE"),
             ("TRANSACTIONAL_ID", "x", "WRITE"), ("TRANSACTIONAL_ID", "x", "DESCRIBE")],
        ),
        (
            "--allow-principal User:a --producer --idempotent --topic t",
            [("TOPIC", "t", "WRITE"), ("TOPIC", "t", "DESCRIBE"), ("TOPIC", "t", "CREATE"),
             ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE")],
        ),
        (
            "--allow-principal User:a --consumer --topic t --group g",
            [("TOPIC", "t", "READ"), ("TOPIC", "t", "DESCRIBE"), ("GROUP", "g", "READ")],
        ),
        (
            "--allow-principal User:a --producer --consumer --topic t --group g",
            [("TOPIC", "t", "WRITE"), ("TOPIC", "t", "DESCRIBE"), ("TOPIC", "t", "CREATE"), ("TOPIC", "t", "READ"),
             ("GROUP", "g", "READ")],
        ),
        ("--allow-principal User:a --cluster", [("CLUSTER", "kafka-cluster", "ALL")]),
        ("--allow-principal User:a --user-principal User:b --operation CreateTokens", [("USER", "User:b", "CREATE_TOKENS")]),
    ],
)  # fmt: skip
def test_roles_stand_for_what_they_need(text: str, expected: list[tuple[str, str, str]]) -> None:
    """As Kafka's tool has it."""
    found = [(acl.resource_type, acl.resource_name, acl.operation) for acl in acls_of_text(text)]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("text", ["--topic t", "--allow-principal User:a", "--allow-principal 'User:a", "--like"])
def test_a_text_that_stands_for_nothing_is_refused(text: str) -> None:
    """The error has the text."""
    with pytest.raises(BarnabasError, match=text.split()[0]):
        acls_of_text(text)


NAMES = (
    st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1)
    .map(str.strip)
    .filter(lambda name: name and not name.startswith("-"))
)


@st.composite
def entries(draw: st.DrawFn) -> Acl:
    """An entry that can be added."""
    kind = draw(st.sampled_from(sorted(SUPPORTED_OPERATIONS)))
    is_cluster = kind is ResourceType.CLUSTER
    return Acl(
        kind.name,
        CLUSTER_NAME if is_cluster else draw(NAMES),
        f"User:{draw(NAMES)}",
        draw(st.sampled_from(SUPPORTED_OPERATIONS[kind])).name,
        draw(st.sampled_from(("ALLOW", "DENY"))),
        draw(st.sampled_from(("*", "10.0.0.1"))),
        "LITERAL" if is_cluster else draw(st.sampled_from(("LITERAL", "PREFIXED"))),
    )


@given(st.lists(entries(), max_size=6))
def test_commands_stand_for_the_entries_that_they_were_made_of(wanted: list[Acl]) -> None:
    """Whatever the names are, and in however few commands."""
    commands = acl_commands(wanted)
    assert {acl for words in commands for acl in acls_of_text(shlex.join(words))} == set(wanted)
    assert len({tuple(words) for words in commands}) == len(commands) <= len(set(wanted))


LINES = """\
[2026-11-29 12:00:00,000] INFO Principal = User:a b is Denied Operation = Read from host = ::1 on resource = \
Topic:LITERAL:app-x for request = Fetch with resourceRefCount = 2, again 7 times within 60 s (kafka.authorizer.logger)
[2026-11-29 12:00:01,000] DEBUG Principal = User:ann is Allowed Operation = Describe from host = 10.0.0.1 on resource = \
Topic:LITERAL:app-x for request = Metadata with resourceRefCount = 1 (kafka.authorizer.logger)
Principal = User:ann is Allowed Operation = Write from host = 10.0.0.1 on resource = Topic:UNKNOWN:NONE for request = \
InitProducerId with resourceRefCount = 0
{"time": "x", "principal": "User:ann", "allowed": false, "operation": "Read", "resourceType": "Topic", \
"patternType": "LITERAL", "resourceName": "app-x"}
{"time": "x", "principal": "User:ann", "allowed": true, "operation": "Read", "resourceType": "Topic", \
"patternType": "LITERAL", "resourceName": "app-y"}
{"principal": 7, "operation": "Read", "resourceType": "Topic", "patternType": "LITERAL", "resourceName": "app-z"}
{"no": "line"
[2026-11-29 12:00:02,000] INFO Kafka has started
"""


def test_commands_follow_from_audit_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From lines of text and of JSON, what was allowed and what was denied."""
    log = tmp_path / "log"
    log.write_text(LINES)
    assert acls.main(["--suggest", "--audit-log", str(log), *BROKER]) == 0
    at = "kafka-acls --bootstrap-server localhost:1 --add --allow-principal"
    assert capsys.readouterr().out.splitlines() == [
        f"{at} 'User:a b' --operation Read --topic app-x",
        f"{at} User:ann --operation IdempotentWrite --cluster",
        f"{at} User:ann --operation Read --topic app-x",
        f"{at} User:ann --operation Read --topic app-y",
    ]
    words = ["--suggest", "--audit-log", str(log), "--principal", "User:ann", "--fold-prefixes", "--output", "json"]
    assert acls.main(words) == 0
    found = [(acl["resource_name"], acl["pattern_type"]) for acl in json.loads(capsys.readouterr().out)]
    assert found == [("app-", "PREFIXED"), ("kafka-cluster", "LITERAL")]
    log.write_text("nothing\n")
    with pytest.raises(BarnabasError, match=r"no line of an authorizer; what is allowed has lines at the level DEBUG"):
        acls.main(words)

"""``barnabas acls`` on a cluster with an authorizer, and on a coordination service before any
broker."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import main
from barnabas.testing import Cluster
from support.coordination import coordination_server

pytestmark = [pytest.mark.interop]

Run = Callable[..., tuple[int, str, str]]
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
OPEN = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
ANN = ("--allow-principal", "User:ann")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster in which everybody may change the lists."""
    with Cluster(settings=OPEN) as running:
        yield running


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``acls`` in this process: its code, output and errors."""

    def call(*words: str, text: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        capfd.readouterr()
        code = main(["acls", *words])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def documents(run: Run, *words: str) -> list[tuple[str, str, str]]:
    """What is listed: operations, resources and principals."""
    code, out, _ = run("--list", "--output", "json", *words)
    assert code == 0
    return [(acl["operation"], acl["resource_name"], acl["principal"]) for acl in json.loads(out)]


def test_lists_are_added_listed_and_removed(cluster: Cluster, run: Run) -> None:
    """In the words of Kafka's tool, and as JSON."""
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    code, out, err = run(*at, "--add", *ANN, "--operation", "Read", "--operation", "Write", "--topic", "t1")
    pattern = "ResourcePattern(resourceType=TOPIC, name=t1, patternType=LITERAL)"
    read, write = (
        f"\t(principal=User:ann, host=*, operation={operation}, permissionType=ALLOW)"
        for operation in ("READ", "WRITE")
    )
    assert (code, out, err) == (0, f"Adding ACLs for resource `{pattern}`: \n {read}\n{write} \n\n", "")
    assert run(*at, "--list", "--topic", "t1")[1] == f"Current ACLs for resource `{pattern}`: \n {read}\n{write} \n\n"
    assert run(*at, "--list", "--principal", "User:eve", "--topic", "t1")[1] == "ACLs for principal `User:eve`\n"
    assert documents(run, *at, "--topic", "t1") == [("READ", "t1", "User:ann"), ("WRITE", "t1", "User:ann")]
    code, out, _ = run(*at, "--remove", *ANN, "--operation", "Write", "--topic", "t1", "--force", "--output", "json")
    assert [acl["operation"] for acl in json.loads(out)["removed"]] == ["WRITE"]
    assert documents(run, *at, "--topic", "t1") == [("READ", "t1", "User:ann")]


def test_a_removal_asks_first(cluster: Cluster, run: Run) -> None:
    """No answer is an error, and any but y removes nothing."""
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    run(*at, "--add", *ANN, "--topic", "t2")
    code, out, _ = run(*at, "--remove", "--topic", "t2", text="n\n")
    assert code == 0
    assert out.startswith("Are you sure you want to delete all ACLs for resource filter `ResourcePattern(")
    code, _, err = run(*at, "--remove", "--topic", "t2")
    assert (code, err) == (1, "Error: there is no answer on standard input: --force asks no questions\n")
    assert documents(run, *at, "--topic", "t2") == [("ALL", "t2", "User:ann")]
    assert run(*at, "--remove", "--topic", "t2", text="Y\n")[0] == 0
    assert documents(run, *at, "--topic", "t2") == []


def test_patterns_that_match_a_name_are_found(cluster: Cluster, run: Run) -> None:
    """Literal, prefixed and the wildcard; ``any`` takes the name as it is."""
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    for name, pattern in (("t3-a", "literal"), ("t3-", "prefixed"), ("*", "literal")):
        run(*at, "--add", *ANN, "--operation", "Read", "--topic", name, "--resource-pattern-type", pattern)
    assert [name for _, name, _ in documents(run, *at, "--topic", "t3-a", "--resource-pattern-type", "match")] == [
        *("*", "t3-", "t3-a")
    ]
    assert [name for _, name, _ in documents(run, *at, "--topic", "t3-", "--resource-pattern-type", "any")] == ["t3-"]
    run(*at, "--remove", "--topic", "*", "--force")


def test_lists_are_there_before_the_first_broker(tmp_path: Path, run: Run) -> None:
    """They are written into the coordination service, and the first broker goes by them."""
    with coordination_server(tmp_path / "zookeeper") as server:
        at = ("--authorizer-properties", f"zookeeper.connect={server.address}/chroot")
        assert run(*at, "--add", *ANN, "--producer", "--topic", "t")[0] == 0
        assert (
            run(*at, "--add", *ANN, "--operation", "Read", "--group", "g", "--resource-pattern-type", "prefixed")[0]
            == 0
        )
        assert documents(run, *at) == [
            *((operation, "t", "User:ann") for operation in ("CREATE", "DESCRIBE", "WRITE")),
            ("READ", "g", "User:ann"),
        ]
        code, _, err = run("--authorizer-properties", "zookeeper.conect=x", "--list")
        assert code == 1
        assert "did you mean zookeeper.connect?" in err
        assert run(*at, "--remove", "--group", "g", "--resource-pattern-type", "prefixed", "--force")[0] == 0
        assert {name for _, name, _ in documents(run, *at)} == {"t"}

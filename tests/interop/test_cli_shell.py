"""zookeeper-shell: every command of zkCli, one-shot and from a pipe, beside Java's own
shell on the same server."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.cli.main import main
from barnabas.cli.zookeeper.shell import _COMMANDS, _SHELL_USAGE
from support.apache_ensemble import classpath
from support.coordination import CoordinationProcess, coordination_server
from support.needs import needs_reference
from support.reference import apache_tool

pytestmark = pytest.mark.interop


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CoordinationProcess]:
    with coordination_server(tmp_path, enforceQuota="true") as running:
        yield running


def shell(server: CoordinationProcess, script: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Commands from a pipe."""
    command = [sys.executable, "-m", "barnabas", "zookeeper-shell", *options, server.address]
    return subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.java
@needs_reference
def test_the_shell_has_every_command_and_option_of_zkcli(server: CoordinationProcess) -> None:
    """Those that the help of ZooKeeper 3.9.4's shell lists, under the same names."""
    command = ["java", "-cp", classpath("3.9"), "org.apache.zookeeper.ZooKeeperMain", "-server", server.address]
    done = subprocess.run(command, input="help\nquit\n", capture_output=True, text=True, timeout=120, check=False)
    theirs = dict(re.findall(r"^\t(\w+) ?(.*)", done.stdout + done.stderr, re.MULTILINE))
    assert len(theirs) > 25
    ours = {name: command.usage for name, command in _COMMANDS.items()} | _SHELL_USAGE
    assert theirs.keys() - ours.keys() == set()
    missing = {name: option_names(usage) - option_names(ours[name]) for name, usage in theirs.items()}
    assert {name: options for name, options in missing.items() if options} == {}


def option_names(usage: str) -> set[str]:
    """The options that a usage line shows."""
    return set(re.findall(r"(?<![\w-])-\w+", usage))


def test_data_in_base64_and_deletions_in_batches(server: CoordinationProcess) -> None:
    """set -b and get -b; deleteall -b sends some at a time, children first; removewatches -l needs
    the server while it is there."""
    lines = ["create /a x", "set -b /a AAH/", "get -b /a", "get -x /a", "set -b /a no!", "deleteall -b 0 /a"]
    lines += [f"create /a/{number} x" for number in range(7)] + ["create /a/0/deep x", "deleteall /a -b 3", "ls /"]
    lines += ["create /w x", "removewatches /w -l"]
    done = shell(server, "\n".join([*lines, ""]))
    assert "AAH/\n00000000  00 01 ff" in done.stdout
    assert "the data are not base64" in done.stderr
    assert "-b 0: at least 1 is expected" in done.stderr
    assert "[zookeeper]" in done.stdout
    assert "NO_WATCHER" in done.stderr


def test_quotas_are_set_shown_enforced_and_removed(server: CoordinationProcess) -> None:
    """Hard limits refuse; a path has no quota above or below it; removing one removes its nodes."""
    done = shell(
        server,
        "create /a x\ncreate /a/b y\nsetquota -N 2 -b 100 /a\nlistquota /a\ncreate /a/c z\nsetquota -n 5 /a/b\n"
        "setquota -B 50 /a\nlistquota /a\ndelquota -N /a\ncreate /a/c z\ndelquota /a\nlistquota /a\n"
        "ls /zookeeper/quota\nsetquota -n 1 /missing\ndelquota /a\n",
    )
    assert "absolute path is /zookeeper/quota/a/zookeeper_limits" in done.stdout
    assert "Output quota for /a count=-1,bytes=100=;countHardLimit=2\nOutput stat for /a count=2,bytes=2" in done.stdout
    assert "Output quota for /a count=-1,bytes=100=;byteHardLimit=50;countHardLimit=2" in done.stdout
    assert "Created /a/c" in done.stdout
    assert done.stdout.rstrip().endswith("[]")
    assert re.search(r"Quota has exceeded : /a/c", done.stderr)
    for message in (
        "/a/b has a parent /a which has a quota",
        "quota for /a does not exist.",
        "Node does not exist: /missing",
        "quota does not exist for /a",
    ):
        assert message in done.stderr, message


@pytest.mark.java
@needs_reference
def test_zkcli_reads_the_quotas_of_the_shell_and_the_shell_those_of_zkcli(server: CoordinationProcess) -> None:
    """The same nodes with the same text."""
    shell(server, "create /ours x\nsetquota -n 3 -N 4 /ours\ncreate /theirs x\n")
    script = "listquota /ours\nsetquota -n 3 /theirs\nsetquota -N 4 /theirs\nquit\n"
    said = apache_tool("org.apache.zookeeper.ZooKeeperMain", "-server", server.address, text=script).stdout
    assert re.search(r"Output quota for /ours count=3,bytes=-1=;(byteHardLimit=-1;)?countHardLimit=4", said), said
    mine = shell(server, "listquota /theirs\n").stdout
    assert re.search("Output quota for /theirs count=3,bytes=-1=;", mine)
    assert "countHardLimit=4" in mine


def test_a_persistent_watch_reports_every_change_until_it_is_removed(server: CoordinationProcess) -> None:
    """Recursive by default; with -m PERSISTENT for the node and its children alone."""
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "zookeeper-shell", server.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as running:
        kazoo = KazooClient(server.address)
        kazoo.start(60)
        kazoo.ensure_path("/r")
        kazoo.ensure_path("/p")
        running.stdin.write("addWatch /r\naddWatch -m PERSISTENT /p\nls /\n")
        until(running, "zookeeper]")
        kazoo.create("/r/deep", b"")
        kazoo.create("/p/c", b"")
        kazoo.set("/r/deep", b"x")
        kazoo.set("/p", b"x")
        for seen in (
            "NodeCreated path:/r/deep",
            "NodeChildrenChanged path:/p",
            "NodeDataChanged path:/r/deep",
            "NodeDataChanged path:/p",
        ):
            until(running, seen)
        running.stdin.write("removewatches /r\nremovewatches /p\nls /r\n")
        until(running, "[deep]")
        kazoo.set("/r/deep", b"y")
        kazoo.stop()
        kazoo.close()
        running.stdin.write("quit\n")
        rest, _ = running.communicate(timeout=60)
        assert "/r/deep" not in rest


def until(running: "subprocess.Popen[str]", text: str) -> None:
    for line in running.stdout:
        if text in line:
            return
    raise AssertionError(f"{text} did not come")


def test_config_and_reconfig_without_an_ensemble(
    server: CoordinationProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server alone has no members to change, and says so."""
    assert main(["zookeeper-shell", server.address, "reconfig", "-add", "server.2=a:1:2;3"]) == 1
    assert "RECONFIG_DISABLED" in capsys.readouterr().err
    assert main(["zookeeper-shell", server.address, "reconfig", "-add", "x", "-members", "y"]) == 1
    assert "reconfig [-s]" in capsys.readouterr().err
    assert main(["zookeeper-shell", server.address, "config", "-c"]) == 0
    assert capsys.readouterr().out.endswith("0 \n")


def test_scripts_get_a_json_document_for_each_command(
    server: CoordinationProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line for one command, failures with the service's code; watch events are
    lines of their own."""
    script = (
        "create /a x\nset -b /a AP8=\nget /a\nget -s -x /a\nls -s /\nls -R /a\nstat -w /a\ndelete /a\nget /a\nnonsense\n"
        "create /b\nget /b\ngetAcl /b\nsetquota -n 3 /b\nlistquota /b\nwhoami\nversion\nhistory\nconfig -c\nquit\n"
    )
    done = shell(server, script, "--output", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"event": "NodeDeleted", "state": "SyncConnected", "path": "/a"} in lines
    answers = [line for line in lines if "command" in line]
    assert [each["command"] for each in answers] == [line.split()[0] for line in script.splitlines()[:-1]]
    found = iter(answers)
    assert next(found) == {"command": "create", "path": "/a"}
    assert next(found) == {"command": "set", "path": "/a"}
    assert next(found) == {"command": "get", "path": "/a", "data_base64": "AP8="}
    with_stat = next(found)
    assert with_stat["data_hex"] == "00ff"
    assert with_stat["stat"].items() >= {"dataVersion": 1, "dataLength": 2, "ephemeralOwner": "0x0"}.items()
    assert next(found)["children"] == ["a", "zookeeper"]
    assert next(found)["paths"] == ["/a"]
    assert next(found)["stat"]["cZxid"].startswith("0x")
    assert next(found)["path"] == "/a"
    assert next(found) == {"command": "get", "error": "Node does not exist: /a", "code": "NO_NODE"}
    assert next(found) == {"command": "nonsense", "error": "Command not found: nonsense", "code": None}
    assert next(found)["path"] == "/b"
    assert next(found)["data"] is None
    assert next(found)["acl"] == [{"scheme": "world", "id": "anyone", "perms": "cdrwa"}]
    assert next(found)["path"] == "/b"
    assert next(found).items() >= {"quota": {"count": 3, "bytes": -1}, "used": {"count": 1, "bytes": 0}}.items()
    assert "Node does not exist: /a" in done.stderr
    assert main(["zookeeper-shell", "--output", "json", server.address, "get", "/missing"]) == 1
    assert json.loads(capfd.readouterr().out)["code"] == "NO_NODE"


def test_a_server_that_cannot_be_reached_does_not_end_the_conversation(server: CoordinationProcess) -> None:
    """The next command is read, as in zkCli; quit as the only command ends with 0."""
    done = shell(server, f"connect 127.0.0.1:1\nconnect {server.address}\nls /\n")
    assert "no coordination server answers at 127.0.0.1:1" in done.stderr
    assert "[zookeeper]" in done.stdout
    assert main(["zookeeper-shell", server.address, "quit"]) == 0


def test_an_argument_that_is_not_utf_8_is_an_error_of_one_line(
    server: CoordinationProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """A byte as a shell of another encoding gives it."""
    command = [sys.executable, "-m", "barnabas", "zookeeper-shell", server.address, "create", b"/\xff"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"Arguments are not valid : /\\udcff\n")
    assert main(["zookeeper-shell", server.address, "create", "/a", "\udcff"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: a text cannot be used, for it is not UTF-8")
    assert error.count("\n") == 1

"""Lab: what a cluster keeps in the coordination service, and znodes of one's own, in the shell.

Stat, versions, conditional writes, ephemerals, sequence numbers and one-time watches, each
by a command of the shell.
"""

import json
import re
import sys

from lab import Lab, run


def body(lab: Lab) -> None:
    """Look at the cluster's znodes, then at the rules of znodes."""
    lab.step("1. What brokers and topics have left there")
    lab.create("topic1", "--partitions 3 --replication-factor 3")
    top = shell(lab, "ls /")
    lab.check(
        "the paths of a cluster are there", holds={"brokers", "controller", "config"} <= names(top), otherwise=top
    )
    lab.check("the ids of the living brokers", holds=names(shell(lab, "ls /brokers/ids")) == {"0", "1", "2"})
    controller = json.loads(last_line(shell(lab, "get /controller")))["brokerid"]
    lab.check(
        f"broker {controller} was the first to make /controller, and is the controller", holds=controller in range(3)
    )
    stat = shell(lab, "stat /brokers/ids/0")
    lab.check("a broker's node is ephemeral: it goes with its session", holds="ephemeralOwner = 0x0" not in stat)
    placed = json.loads(last_line(shell(lab, "get /brokers/topics/topic1")))["partitions"]
    lab.check("a topic's node says where its replicas belong", holds=all(len(each) == 3 for each in placed.values()))
    refused = shell(lab, "create /controller me", may_fail=True)
    lab.check("a second controller is refused", holds="Node already exists: /controller" in refused, otherwise=refused)

    lab.step("2. Versions: a write that names an old one is refused")
    shell(lab, "create /app config-1")
    shell(lab, "set /app config-2")
    version = int(re.search(r"dataVersion = (\d+)", shell(lab, "get -s /app"))[1])  # type: ignore[index]
    lab.check("each change raises the version", holds=version == 1, otherwise=version)
    shell(lab, "set -v 1 /app config-3")
    refused = shell(lab, "set -v 1 /app config-4", may_fail=True)
    lab.check("version 1 is gone", holds="version No is not valid : /app" in refused, otherwise=refused)
    refused = shell(lab, "delete -v 1 /app", may_fail=True)
    kept = names(shell(lab, "ls /"))
    lab.check(
        "nor can it be deleted by that version",
        holds="version No is not valid : /app" in refused and "app" in kept,
        otherwise=refused,
    )
    refused = shell(lab, "get app", may_fail=True)
    lab.check("paths begin with a slash", holds="Path must start with / character" in refused, otherwise=refused)
    shell(lab, "create /app/größe Ω")
    lab.check("and may hold any letters", holds=names(shell(lab, "ls /app")) == {"größe"})

    lab.step("3. In one session: an ephemeral, sequence numbers, and a watch")
    commands = [
        "create -e /app/here now",
        "create -s /app/task- first",
        "create -s /app/task- second",
        "ls /app",
        "get -w /app",
        "set /app config-5",
        "set /app config-6",
        "quit",
    ]
    text = lab.barnabas("zookeeper-shell $ZK", stdin="".join(f"{each}\n" for each in commands), source="commands.txt")
    lab.check(
        "numbers are handed out in order",
        holds=bool(re.search(r"task-\d{10}", text)) and text.count("Created /app/task-") == 2,
        otherwise=text,
    )
    lab.check("the watch fired once for two changes", holds=text.count("NodeDataChanged") == 1, otherwise=text)
    left = names(shell(lab, "ls /app"))
    lab.check("with its session the ephemeral is gone", holds="here" not in left and len(left) == 3, otherwise=left)
    shell(lab, "deleteall /app")
    lab.check("and now all of it", holds="app" not in names(shell(lab, "ls /")))


def shell(lab: Lab, command: str, *, may_fail: bool = False) -> str:
    """One command, and what it prints."""
    return lab.barnabas(f"zookeeper-shell $ZK {command}", may_fail=may_fail)


def last_line(text: str) -> str:
    """Where the shell prints data."""
    return text.rpartition("\n")[2]


def names(text: str) -> set[str]:
    """Of a last line such as ``[a, b]``."""
    return set(last_line(text).strip("[]").split(", "))


if __name__ == "__main__":
    sys.exit(run("The shell and the znodes", body))

"""Lab: an ensemble of three coordination servers elects its leader.

Each server that starts, or has lost its leader, is LOOKING. It votes for itself, and takes over
each better vote that it hears of: a higher epoch wins, then a higher zxid, which means more of the
history, then a higher id. The server for which a majority votes leads. Any server answers reads; a
write goes through the leader and needs a majority.
"""

import re
import socket
import sys
import time

from lab import Lab, run

SERVERS = (1, 2, 3)
STORY = re.compile(
    r"(LOOKING|LEADING|FOLLOWING|New election\. .*|Notification: .*|Have smaller server identifier.*|Elected server .*|"
    r"Peer state changed: .*|"
    r"Serving as .*) \(barnabas"
)


def body(lab: Lab) -> None:
    """Watch an election, kill the leader, bring it back, take the majority away."""
    lab.step("1. Three servers start: what server 2 logs")
    story(lab, 2, 0)
    leader = the_leader(lab, SERVERS)
    modes(lab, SERVERS)
    lab.say(
        f"Server {leader} leads. No server has any history yet, so the highest id of those that were up in time won."
    )
    lab.create("topic1", "--partitions 1 --replication-factor 1")

    lab.step(f"2. Server {leader}, the leader, is killed (kill -9)")
    others = tuple(n for n in SERVERS if n != leader)
    marks = {n: len(log_of(lab, n)) for n in SERVERS}
    began = time.monotonic()
    lab.cluster.kill_zookeeper(leader)
    second = the_leader(lab, others)
    took_s = time.monotonic() - began
    story(lab, second, marks[second])
    modes(lab, others)
    lab.say(
        f"Server {second} led {took_s:.1f} s later. Its zxid is not 0x0 any more: votes now compare what servers know."
    )
    epochs = [int(text, 16) for text in re.findall(r"Serving as leader from zxid (0x\w+)", log_of(lab, second))]
    lab.check(
        "a new leader begins a new epoch, the upper half of the zxid", holds=epochs[-1] >> 32 > 1, otherwise=epochs
    )
    lab.create("topic2", "--partitions 1 --replication-factor 1")
    lab.check("two of three servers are enough to write", holds=lab.has_topic("topic2"))

    lab.step(f"3. Server {leader} comes back")
    lab.cluster.start_zookeeper(leader)
    lab.until(lambda: mode_of(lab, leader) == "follower", f"server {leader} to follow")
    story(lab, leader, marks[leader])
    modes(lab, SERVERS)
    lab.check("there is no new election: it follows the leader that is there", holds=mode_of(lab, second) == "leader")

    lab.step("4. Two of three are killed: no majority")
    gone = [n for n in SERVERS if n != leader]
    for number in gone:
        lab.cluster.kill_zookeeper(number)
    lab.until(lambda: "not currently serving" in words(lab, leader), "the last server to stop serving")
    lab.show(f"echo srvr | nc {' '.join(address(lab, leader))}", words(lab, leader))
    lab.say("It cannot know what the others have decided.")
    lab.check("the last server serves no client", holds=not mode_of(lab, leader))
    for number in gone:
        lab.cluster.start_zookeeper(number)
    the_leader(lab, SERVERS)
    lab.until(lambda: lab.broker_ids_quietly() == "[0]", "the broker's session")
    lab.check("with a majority all is there again", holds=lab.has_topic("topic1") and lab.has_topic("topic2"))


def log_of(lab: Lab, server: int) -> str:
    """All that a server has logged."""
    return lab.cluster.zookeeper_log(server).read_text()


def story(lab: Lab, server: int, since: int) -> None:
    """What a server's log says of an election, once it is over."""
    lab.until(lambda: "Serving as" in log_of(lab, server)[since:], f"the role of server {server}")
    lines = STORY.findall(log_of(lab, server)[since:])
    lab.show(f"tail $DATA/logs/zookeeper{server}.log", "\n".join(lines))


def address(lab: Lab, server: int) -> tuple[str, str]:
    """Host and port of a server."""
    host, _, port = lab.cluster.zookeeper_connect.split(",")[server - 1].partition(":")
    return host, port


def words(lab: Lab, server: int) -> str:
    """The answer to the four-letter word srvr; empty when there is none."""
    host, port = address(lab, server)
    try:
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
            return answer.decode()
    except OSError:
        return ""


def mode_of(lab: Lab, server: int) -> str:
    """leader, follower, or nothing."""
    found = re.search(r"Mode: (\w+)", words(lab, server))
    return found[1] if found else ""


def the_leader(lab: Lab, servers: tuple[int, ...]) -> int:
    """The server that leads, once there is one and the others follow."""

    def found() -> tuple[int] | None:
        roles = {server: mode_of(lab, server) for server in servers}
        leaders = [server for server, mode in roles.items() if mode == "leader"]
        return (leaders[0],) if leaders and all(roles.values()) else None

    return lab.until(found, "a leader and its followers")[0]


def modes(lab: Lab, servers: tuple[int, ...]) -> None:
    """Show what each server is."""
    for server in servers:
        line = next(line for line in words(lab, server).splitlines() if line.startswith("Mode"))
        lab.show(f"echo srvr | nc {' '.join(address(lab, server))} | grep Mode", line)


if __name__ == "__main__":
    sys.exit(run("An ensemble elects its leader", body, brokers=1, zk_servers=3))

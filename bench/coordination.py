#!/usr/bin/env python3
"""Figures of the coordination service, side by side with Apache ZooKeeper where the
reference systems are at hand.

usage: bench/coordination.py
           [--only load,multi,ensemble,failover,start,watches,connections,znodes]
           [--operations 200000] [--sessions 16] [--window 50] [--znodes 1000000]
           [--kills 5] [--alone] [--output json]

The load comes over raw sockets from many sessions at once, each with a window of requests on its
way, encoded beforehand; so the client costs little beside the server. A first round warms the
server up (Java compiles its hot code), the second is reported. The ratio is ours to theirs.
"""

import argparse
import contextlib
import json
import logging
import os
import re
import selectors
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from systems import (
    APACHE,
    BARNABAS,
    HAS_REFERENCE,
    OURS,
    THEIRS,
    Server,
    cpu_s,
    free_ports,
    print_comparison,
    resident_kb,
)

from barnabas.wire.jute.frames import (
    decode_connect_response,
    decode_reply_header,
    encode_connect_request,
    encode_multi_request,
    encode_request,
)
from barnabas.wire.jute.opcodes import OpCode, Xid
from barnabas.wire.jute.records import (
    OPEN_ACL,
    ConnectRequest,
    CreateRequest,
    GetDataRequest,
    SetDataRequest,
)

DATA = b"d" * 100
LENGTH = struct.Struct(">i")
Addresses = list[tuple[str, int]]


def percentile(values: list[float], part: float) -> float:
    """In milliseconds, of seconds."""
    return 1e3 * sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Session:
    """A session on a raw socket: it counts responses and looks only at their headers."""

    def __init__(self, address: tuple[str, int], timeout_ms: int = 30_000) -> None:
        self.socket = socket.create_connection(address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(encode_connect_request(ConnectRequest(0, 0, timeout_ms, 0, bytes(16)), read_only=False))
        self._received = bytearray()
        while not (frames := self.receive()):
            pass
        if decode_connect_response(frames[0])[0].timeout_ms == 0:
            sys.exit(f"{address} refused the session")

    def receive(self) -> list[bytes]:
        """Wait for bytes: the frames that are whole, without their length."""
        if not (received := self.socket.recv(1 << 18)):
            sys.exit("the server closed the connection")
        self._received += received
        found, at, buffer = [], 0, self._received
        while len(buffer) - at >= 4 and len(buffer) - at - 4 >= (size := LENGTH.unpack_from(buffer, at)[0]):
            found.append(bytes(buffer[at + 4 : at + 4 + size]))
            at += 4 + size
        del buffer[:at]
        return found

    def take(self) -> int:
        """How many responses have come; an error ends the program. Events do not count."""
        count = 0
        for frame in self.receive():
            xid, _, error = decode_reply_header(frame)
            if error:
                sys.exit(f"request {xid} was answered with error {error}")
            count += xid >= 0
        return count

    def call(self, request: bytes) -> None:
        """Send one request and wait for its response."""
        self.socket.sendall(request)
        while not self.take():
            pass


def rush(sessions: list[Session], requests: list[list[bytes]], window: int) -> float:
    """Send each session's requests, at most ``window`` at a time on their way: the
    seconds that it took."""
    selector = selectors.DefaultSelector()
    sent, done = [0] * len(sessions), [0] * len(sessions)

    def fill(index: int) -> None:
        batch = requests[index][sent[index] : done[index] + window]
        sent[index] += len(batch)
        sessions[index].socket.sendall(b"".join(batch))

    start = time.perf_counter()
    for index, session in enumerate(sessions):
        selector.register(session.socket, selectors.EVENT_READ, index)
        fill(index)
    open_ones = len(sessions)
    while open_ones:
        for key, _ in selector.select(60):
            index = key.data
            done[index] += sessions[index].take()
            if done[index] == len(requests[index]):
                selector.unregister(key.fileobj)
                open_ones -= 1
            elif sent[index] - done[index] <= window // 2:
                fill(index)
    return time.perf_counter() - start


def creates(count: int, prefix: str) -> list[bytes]:
    """Requests that create nodes of 100 bytes."""
    return [
        encode_request(n + 1, OpCode.CREATE, CreateRequest(f"{prefix}{n}", DATA, list(OPEN_ACL), 0))
        for n in range(count)
    ]


def transactions(count: int, prefix: str, size: int) -> list[bytes]:
    """Requests that create as many nodes of 100 bytes, so many at a time."""
    return [
        encode_multi_request(
            first + 1,
            [
                (OpCode.CREATE, CreateRequest(f"{prefix}{n}", DATA, list(OPEN_ACL), 0))
                for n in range(first, min(first + size, count))
            ],
        )
        for first in range(0, count, size)
    ]


def sets(count: int, prefix: str, nodes: int) -> list[bytes]:
    """Requests that set these nodes in turn."""
    return [
        encode_request(n + 1, OpCode.SET_DATA, SetDataRequest(f"{prefix}{n % nodes}", DATA, -1)) for n in range(count)
    ]


def gets(count: int, prefix: str, nodes: int) -> list[bytes]:
    """Requests that read these nodes in turn."""
    return [encode_request(n + 1, OpCode.GET_DATA, GetDataRequest(f"{prefix}{n % nodes}", False)) for n in range(count)]


@contextlib.contextmanager
def members(system: str, count: int, heap: str = "1G", **settings: object) -> Iterator[tuple[list[Server], Path]]:
    """Running servers, one or an ensemble, each with its own folder."""
    java = None
    if system == THEIRS:
        jars = subprocess.run([APACHE, "classpath"], capture_output=True, text=True, check=True).stdout.strip()
        java = ["java", f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-cp", jars]
    root = Path(tempfile.mkdtemp(prefix=f"coordination-{system}-"))
    ports = free_ports(3 * count)
    voters = (
        {f"server.{n + 1}": f"127.0.0.1:{ports[count + n]}:{ports[2 * count + n]}" for n in range(count)}
        if count > 1
        else {}
    )
    servers = []
    for n in range(count):
        folder = root / str(n + 1)
        folder.mkdir()
        (folder / "myid").write_text(str(n + 1))
        lines = {
            "tickTime": 2000,
            "initLimit": 10,
            "syncLimit": 5,
            "dataDir": folder,
            "clientPort": ports[n],
            "maxClientCnxns": 0,
        }
        lines |= {"admin.enableServer": "false", "4lw.commands.whitelist": "*"} | voters | settings
        config = root / f"zoo{n + 1}.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        command = (
            [*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
            if java
            else [*BARNABAS, "zookeeper-server-start"]
        )
        servers.append(Server([*command, str(config)], ports[n], root / f"{n + 1}.log"))
    try:
        for server in servers:
            server.start()
        for server in servers:
            wait_until_serving(server.port)
        yield servers, root
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(root, ignore_errors=True)


def four_letters(port: int, word: bytes) -> str:
    """The answer to a four-letter word."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall(word)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def wait_until_serving(port: int) -> None:
    """Wait until a server is one that clients can work with."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if "Mode:" in four_letters(port, b"srvr"):
                return
        time.sleep(0.005)
    sys.exit(f"the server at port {port} does not serve")


def mode(port: int) -> str:
    """Leader, follower, observer or standalone; empty when nothing answers."""
    with contextlib.suppress(OSError):
        if found := re.search(r"Mode: (\w+)", four_letters(port, b"srvr")):
            return found[1]
    return ""


def measure_load(system: str, options: argparse.Namespace, count: int) -> dict[str, float]:
    """Throughput, CPU for each operation of all servers, and the time of one
    operation at a time."""
    kind = "standalone" if count == 1 else f"ensemble of {count}"
    figures: dict[str, float] = {}
    with members(system, count) as (servers, _):
        pids = [server.process.pid for server in servers]
        addresses = [("127.0.0.1", server.port) for server in servers]
        sessions = [Session(addresses[n % count]) for n in range(options.sessions)]
        each = options.operations // options.sessions
        for warm in (True, False):
            roots = [f"/{'warm' if warm else 'load'}-{n}-" for n in range(options.sessions)]
            plans: dict[str, Callable[[str], list[bytes]]] = {
                "create": lambda root: creates(each, root),
                "set": lambda root: sets(each, root, each),
                "get": lambda root: gets(each, root, each),
            }
            for name, plan in plans.items():
                requests = [plan(root) for root in roots]
                before = cpu_s(pids)
                seconds = rush(sessions, requests, options.window)
                done = each * options.sessions
                if not warm:
                    figures[f"{kind}: {name} ops/s"] = done / seconds
                    figures[f"{kind}: {name} CPU us"] = 1e6 * (cpu_s(pids) - before) / done
        for name, requests in (("set", sets(2000, "/load-0-", 1000)), ("get", gets(2000, "/load-0-", 1000))):
            took = []
            for request in requests:
                start = time.perf_counter()
                sessions[0].call(request)
                took.append(time.perf_counter() - start)
            figures[f"{kind}: {name}, one at a time, p50 ms"] = percentile(took, 0.5)
            figures[f"{kind}: {name}, one at a time, p99 ms"] = percentile(took, 0.99)
    return figures


def measure_multi(system: str, options: argparse.Namespace) -> dict[str, float]:
    """CPU for each of the nodes that are created in transactions of 500, each session
    below a parent of its own."""
    figures: dict[str, float] = {}
    with members(system, 1, heap="2G") as (servers, _):
        server = servers[0]
        sessions = [Session(("127.0.0.1", server.port)) for _ in range(options.sessions)]
        each = options.operations // options.sessions
        for warm in (True, False):
            roots = [f"/{'warm' if warm else 'load'}-{n}" for n in range(options.sessions)]
            for root in roots:
                sessions[0].call(encode_request(1, OpCode.CREATE, CreateRequest(root, b"", list(OPEN_ACL), 0)))
            requests = [transactions(each, f"{root}/", 500) for root in roots]
            before = cpu_s([server.process.pid])
            seconds = rush(sessions, requests, 4)
            if not warm:
                figures["transactions of 500: create nodes/s"] = each * len(sessions) / seconds
                cpu = cpu_s([server.process.pid]) - before
                figures["transactions of 500: create CPU us"] = 1e6 * cpu / (each * len(sessions))
    return figures


def measure_failover(system: str, options: argparse.Namespace) -> dict[str, float]:
    """The leader of three is killed, ``--kills`` times: from the kill until a write
    is acknowledged to kazoo."""
    from kazoo.client import KazooClient  # here: only this figure needs it

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # lost connections are what is measured
    gaps = []
    with members(system, 3) as (servers, _):
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        for _ in range(options.kills):
            leader = next(server for server in servers if mode(server.port) == "leader")
            client = KazooClient(hosts, timeout=10)
            client.start(30)
            client.ensure_path("/failover")
            leader.process.kill()
            start = time.perf_counter()
            while True:
                try:
                    client.set("/failover", b"x")
                    break
                except Exception:  # whatever the client raises while there is no leader
                    time.sleep(0.005)
            gaps.append(time.perf_counter() - start)
            client.stop()
            client.close()
            leader.process.wait()
            leader.start()
            for server in servers:
                wait_until_serving(server.port)
    return {
        "leader killed: s until a write, median": statistics.median(gaps),
        "leader killed: s until a write, longest": max(gaps),
    }


def measure_start(system: str) -> dict[str, float]:
    """From the start of a process until its first answer."""
    with members(system, 1) as (servers, _):
        servers[0].stop()
        return {"start to first answer, s": timed_start(servers[0])}


def live_bytes(system: str, pid: int) -> float:
    """What a server holds: resident memory of ours, live objects of Java's heap of
    theirs (which favours theirs)."""
    if system == OURS:
        return resident_kb(pid) * 1024
    printed = subprocess.run(["jmap", "-histo:live", str(pid)], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"^Total\s+\d+\s+(\d+)", printed, re.MULTILINE)[1])


def measure_znodes(system: str, options: argparse.Namespace) -> dict[str, float]:
    """Very many nodes: memory for each, the reload, and what a snapshot costs the others."""
    figures: dict[str, float] = {}
    count = options.znodes
    with members(system, 1, heap="3G", snapCount=100_000_000) as (servers, root):
        server = servers[0]
        empty = live_bytes(system, server.process.pid)
        sessions = [Session(("127.0.0.1", server.port)) for _ in range(8)]
        parents = [
            encode_request(1, OpCode.CREATE, CreateRequest(f"/{n}", b"", list(OPEN_ACL), 0)) for n in range(1000)
        ]
        for parent in parents:
            sessions[0].call(parent)
        requests = [
            [
                encode_request(n + 1, OpCode.CREATE, CreateRequest(f"/{n % 1000}/node-{n}", DATA, list(OPEN_ACL), 0))
                for n in range(first, count, 8)
            ]
            for first in range(8)
        ]
        before = cpu_s([server.process.pid])
        seconds = rush(sessions, requests, 50)
        figures["znodes: create ops/s"] = count / seconds
        figures["znodes: create CPU us"] = 1e6 * (cpu_s([server.process.pid]) - before) / count
        figures["znodes: bytes each"] = (live_bytes(system, server.process.pid) - empty) / count
        figures["znodes: resident MB"] = resident_kb(server.process.pid) / 1024
        for session in sessions:
            session.socket.close()
        server.stop()
        figures["znodes: reload from the log, s"] = timed_start(server)
        server.stop()
        config = root / "zoo1.cfg"
        config.write_text(config.read_text().replace("snapCount=100000000", "snapCount=4000"))
        server.start()
        wait_until_serving(server.port)
        figures |= beside_snapshots(server, root)
        server.stop()
        figures["znodes: reload from a snapshot, s"] = timed_start(server)
    return figures


def timed_start(server: Server) -> float:
    """Seconds from the start of the process until it serves."""
    start = time.perf_counter()
    server.start()
    wait_until_serving(server.port)
    return time.perf_counter() - start


def beside_snapshots(server: Server, root: Path) -> dict[str, float]:
    """One session writes and one reads all the time, while snapshots are taken: the
    longest waits."""

    def snapshots() -> set[str]:
        return {path.name for path in (root / "1").rglob("snapshot.*")}

    session, took, calm = Session(("127.0.0.1", server.port)), [], []
    before, taken = snapshots(), 0
    write = encode_request(1, OpCode.SET_DATA, SetDataRequest("/5/node-5", DATA, -1))
    read = encode_request(2, OpCode.GET_DATA, GetDataRequest("/5/node-5", False))
    end = time.monotonic() + 60
    while time.monotonic() < end and taken < 3:
        for request in (write, read):
            start = time.perf_counter()
            session.call(request)
            took.append(time.perf_counter() - start)
        time.sleep(0.001)
        if len(took) == 2000:
            calm = list(took)
        if len(took) % 100 == 0:
            taken = len(snapshots() - before)
    return {
        "snapshots: taken": taken,
        "snapshots: longest request, ms": percentile(took, 1),
        "snapshots: p99 of a request, ms": percentile(took, 0.99),
        "snapshots: p99 of a request before the first, ms": percentile(calm, 0.99),
    }


def measure_watches(system: str) -> dict[str, float]:
    """1,000 sessions, each with 100 watches on nodes of its own: memory, and the time
    until all watches have fired."""
    count, each = 1000, 100
    with members(system, 1) as (servers, _):
        server = servers[0]
        address = ("127.0.0.1", server.port)
        writer = Session(address)
        rush([writer], [creates(each, "/watched-")], 50)
        before = resident_kb(server.process.pid)
        sessions = [Session(address, 60_000) for _ in range(count)]
        watching = [encode_request(n + 1, OpCode.GET_DATA, GetDataRequest(f"/watched-{n}", True)) for n in range(each)]
        rush(sessions, [watching] * count, each)
        held = resident_kb(server.process.pid) - before
        start = time.perf_counter()
        writer.socket.sendall(b"".join(sets(each, "/watched-", each)))
        for session in sessions:
            events = 0
            while events < each:
                events += sum(decode_reply_header(frame)[0] == Xid.WATCHER_EVENT for frame in session.receive())
        return {
            "watches: MB for 1,000 sessions with 100": held / 1024,
            "watches: s until 100,000 have fired": time.perf_counter() - start,
        }


def measure_connections(system: str) -> dict[str, float]:
    """5,000 sessions opened from one address."""
    with members(system, 1) as (servers, _):
        server = servers[0]
        before, start = resident_kb(server.process.pid), time.perf_counter()
        sessions = [Session(("127.0.0.1", server.port)) for _ in range(5000)]
        seconds = time.perf_counter() - start
        held = resident_kb(server.process.pid) - before
        for session in sessions:
            session.socket.close()
    return {"connections: s for 5,000 sessions": seconds, "connections: MB for 5,000 sessions": held / 1024}


STEPS: dict[str, Callable[[str, argparse.Namespace], dict[str, float]]] = {
    "load": lambda system, options: measure_load(system, options, 1),
    "multi": measure_multi,
    "ensemble": lambda system, options: measure_load(system, options, 3),
    "failover": measure_failover,
    "start": lambda system, _: measure_start(system),
    "watches": lambda system, _: measure_watches(system),
    "connections": lambda system, _: measure_connections(system),
    "znodes": measure_znodes,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--window", type=int, default=50, help="requests of a session on their way")
    parser.add_argument("--znodes", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="do not run the reference system")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(STEPS):
        parser.error(f"unknown in --only: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    results: dict[str, dict[str, float]] = {OURS: {}, THEIRS: {}}
    for name in STEPS:
        for system in [OURS, THEIRS] if HAS_REFERENCE and not options.alone else [OURS]:
            if name in wanted:
                print(f"{system}: {name} (load {os.getloadavg()[0]:.1f}) ...", file=sys.stderr, flush=True)
                results[system].update(STEPS[name](system, options))
    if options.output == "json":
        print(json.dumps(results, indent=2))
        return 0
    print_comparison(results, width=56, digits=4)
    return 0


if __name__ == "__main__":
    sys.exit(main())

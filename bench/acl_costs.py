"""What access control lists cost beside Apache Kafka: the rights of Produce, in CPU of the broker,
and very many lists on one broker. `security.py` measures both as ``acls``.

The load is that of ``../shared/measure/rawload.py``: requests that were encoded beforehand.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence

from systems import OURS, SHARED, Server, cpu_s, free_port, resident_kb, servers

from barnabas.client.admin import Acl, AclFilter, Admin

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # The first ACLs come from a client without any right.
    "allow.everyone.if.no.acl.found": "true",
}
OWN = [
    Acl("TOPIC", "raw-", "User:ANONYMOUS", "ALL", pattern_type="PREFIXED"),  # rawload's topics
    Acl("CLUSTER", "kafka-cluster", "User:ANONYMOUS", "ALL"),
]
A_REQUEST = 1000
_TIMEOUT_MS = 600_000
_SHAPES = {"p1": "one record of 1 KB", "p16k": "batches of 16 KB"}


def others(count: int) -> list[Acl]:
    """Entries of other users, half of them for prefixes."""
    return [
        Acl("TOPIC", f"team-{number}-", f"User:u{number}", "READ", pattern_type=("LITERAL", "PREFIXED")[number % 2])
        for number in range(count)
    ]


def create(admin: Admin, acls: Sequence[Acl]) -> None:
    for first in range(0, len(acls), A_REQUEST):
        admin.create_acls(acls[first : first + A_REQUEST])


def pids_of(system: str, broker: Server) -> list[int]:
    """The broker's process, not that of the script that has started it."""
    pid = broker.process.pid
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid] if system == OURS else [int(child) for child in children]


def measure_rights(system: str, rounds: int, mb: int, count: int) -> dict[str, float]:
    """CPU of the broker for a Produce request, in microseconds, without an authorizer and with this
    many ACLs: the least of rounds in turns, after one that warms up. Other work on the machine only
    adds to it."""
    used: dict[str, dict[str, list[float]]] = {}
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, settings in (("no authorizer", {}), ("ACLs", AUTHORIZER)):
            directory = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            settings = {"offsets.topic.replication.factor": "1", **settings}
            address, (broker,) = stack.enter_context(servers(system, directory, 1, **settings))
            if settings.keys() & AUTHORIZER.keys():
                with Admin({"bootstrap.servers": address}) as admin:
                    create(admin, [*OWN, *others(count)])
            sides[name] = address, pids_of(system, broker)
        for number in range(rounds + 1):
            for name, (address, pids) in sides.items() if number % 2 else reversed(sides.items()):
                for shape, cpu_us in _load(address, pids, mb).items():
                    if number:
                        used.setdefault(shape, {}).setdefault(name, []).append(cpu_us)
    figures = {}
    for shape, by_side in used.items():
        least = {name: min(each) for name, each in by_side.items()}
        figures |= {f"Produce of {shape}, {name}, us": cpu_us for name, cpu_us in least.items()}
        figures[f"Produce of {shape}, more with ACLs, %"] = (least["ACLs"] / least["no authorizer"] - 1) * 100
    return figures


def _load(address: str, pids: Sequence[int], mb: int) -> dict[str, float]:
    command = [sys.executable, str(SHARED / "measure/rawload.py"), address, "--mb", str(mb)]
    command += ["--pids", ",".join(map(str, pids)), "--only", ",".join(_SHAPES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [each for each in json.loads(done.stdout).values() if isinstance(each, dict)]
    # In rawload's order: 16 KB first.
    return {_SHAPES[key]: each["cpu_us_per_req"] for key, each in zip(("p16k", "p1"), found, strict=True)}


def measure_many(system: str, count: int) -> dict[str, object]:
    """Seconds that this many ACLs take, one after the other, and at the start of a broker; its
    memory; and the longest step of the event loop until then."""
    figures: dict[str, object] = {}
    metrics_port = free_port()
    settings = {"offsets.topic.replication.factor": "1", "request.timeout.ms": str(_TIMEOUT_MS), **AUTHORIZER}
    if system == OURS:
        settings["metrics.http.address"] = f"127.0.0.1:{metrics_port}"

    def note_loop(what: str) -> None:
        if system == OURS:
            figures[f"longest step until {what}, ms"], places = slow_steps(metrics_port)
            figures[f"steps above 10 ms until {what}"] = places

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        servers(system, directory, 1, **settings) as (address, (broker,)),
        Admin(
            {"bootstrap.servers": address, "request.timeout.ms": _TIMEOUT_MS, "default.api.timeout.ms": _TIMEOUT_MS}
        ) as admin,
    ):
        figures["memory without ACLs, MB"] = resident_kb(*pids_of(system, broker)) / 1024
        create(admin, OWN)
        with timed(figures, "CreateAcls of all", system, broker):
            create(admin, others(count))
        note_loop("all are created")
        with timed(figures, "DescribeAcls of all", system, broker):
            assert len(admin.list_acls()) == count + len(OWN)
        with timed(figures, "DescribeAcls of one", system, broker):
            assert len(admin.list_acls(AclFilter("TOPIC", "team-7-"))) == 1
        with timed(figures, "CreateAcls of one", system, broker):
            admin.create_acls([Acl("TOPIC", "team-7-", "User:eve", "READ")])
        with timed(figures, "DeleteAcls by a user", system, broker):
            assert len(admin.delete_acls(AclFilter(principal="User:eve"))) == 1
        note_loop("one is deleted")
        figures["memory with ACLs, MB"] = resident_kb(*pids_of(system, broker)) / 1024
        broker.stop()
        start = time.perf_counter()
        broker.start()
        figures["start with ACLs, s"] = time.perf_counter() - start
        figures["start with ACLs, CPU s"] = cpu_s(pids_of(system, broker))
        figures["memory after the start, MB"] = resident_kb(*pids_of(system, broker)) / 1024
        with timed(figures, "DeleteAcls of all", system, broker):
            for pattern_type in ("LITERAL", "PREFIXED"):
                admin.delete_acls(AclFilter("TOPIC", pattern_type=pattern_type))
        note_loop("all are deleted")
    return figures


@contextlib.contextmanager
def timed(figures: dict[str, object], what: str, system: str, broker: Server) -> Iterator[None]:
    """Note how long it took, and the broker's CPU."""
    pids = pids_of(system, broker)
    cpu, start = cpu_s(pids), time.perf_counter()
    yield
    figures[f"{what}, s"] = time.perf_counter() - start
    figures[f"{what}, CPU s"] = cpu_s(pids) - cpu


def slow_steps(port: int) -> tuple[float, dict[str, float]]:
    """The longest step of the event loop since the start, 0 if none took more than 10 ms; and how
    many did by their place."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        text = page.read().decode()
    slowest = re.search(r"^event_loop_slowest_callback_seconds (\S+)", text, re.MULTILINE)[1]
    places = re.findall(r'^event_loop_slow_place_callbacks_total{place="(.*)"} (\S+)', text, re.MULTILINE)
    return float(slowest) * 1000, {place: float(count) for place, count in places}

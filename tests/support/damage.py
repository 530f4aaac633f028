"""Damage to one stored file of a server, and what came of it: the frame of the damage sweeps.

A sweep stores the state of a simulated cluster once (`damaged_brokers.store_cluster`,
`damaged_ensemble.store_ensemble`), and starts a new one from it for each `Damage`: the production
code on simulated disks, in virtual time. `Outcome` says what is missing, and what the servers
logged. A loss that no server reports is silent.

To sweep other files, say in `kinds_of_bytes` where their kinds of byte are, and choose the files by
a pattern in tests/simulation/test_damage_sweep.py.
"""

import logging
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from barnabas.testing.simulation.disk import SimulatedFiles
from barnabas.testing.simulation.loop import current_process
from barnabas.testing.simulation.simulation import Machine, Simulation
from barnabas.wire.kafka.records.batch_header import read_headers

__all__ = ["Damage", "Disks", "Outcome", "Reports", "damages_of", "damages_of_segment", "disks_of", "fill"]

Disks = dict[str, dict[str, bytes]]
"""The files of each machine, by path."""


@dataclass(frozen=True)
class Damage:
    """One file of one machine is another one, or is gone."""

    machine: str
    path: str
    what: str
    data: bytes | None
    """None removes the file."""
    is_end_of_log: bool = False
    """Whether a coordination server's log only ends earlier than it did, between two transactions:
    nothing on its disk shows it, so a server alone cannot know."""
    is_directory: bool = False
    """Whether a directory takes the file's place."""

    def __str__(self) -> str:
        return f"{self.machine}:{self.path}: {self.what}"


@dataclass
class Outcome:
    """What a cluster did after a damage."""

    missing: list[object] = field(default_factory=list)
    """Acknowledged writes that no reader gets: they are lost, or are not served."""
    lost: list[object] = field(default_factory=list)
    """Those of them that the undamaged machines do not hold any more either."""
    wrong: list[object] = field(default_factory=list)
    """Acknowledged writes that readers get with another content."""
    revived: list[object] = field(default_factory=list)
    """Deleted records that readers get."""
    reports: list[str] = field(default_factory=list)
    """Warnings and failed starts of the damaged machine, and errors of all."""
    violations: list[str] = field(default_factory=list)

    def faults(self, damage: Damage | None, *, has_replicas: bool) -> list[str]:
        """What is wrong: a loss in spite of replicas, a loss or another content without a
        report, an unhandled error."""
        name = "a healthy disk" if damage is None else str(damage)
        found = [f"{name}: {text}" for text in self.violations]
        if self.wrong:
            found.append(f"{name}: other contents: {self.wrong[:5]}")
        if self.lost and has_replicas:
            found.append(f"{name}: {len(self.lost)} acknowledged writes are lost on sound disks: {self.reports[:2]}")
        if (self.missing or self.revived) and not (damage and self._is_reported(damage)):
            found.append(
                f"{name}: {len(self.missing)} missing, {len(self.revived)} revived, in silence: {self.reports[:2]}"
            )
        alarms = [line for line in self.reports if "/logs" in line or "/data" in line or "lost" in line]
        if damage is None and alarms:
            found.append(f"{name}: false alarms: {alarms}")
        return found

    def _is_reported(self, damage: Damage) -> bool:
        """Whether a line names the file, or its folder."""
        folder, _, name = damage.path.rpartition("/")
        return any(name in line or folder in line for line in self.reports)


class Reports(logging.Handler):
    """Collects into an outcome what servers log, without a damaged one the warnings of all.

    A context manager."""

    def __init__(self, outcome: Outcome, damaged: str) -> None:
        super().__init__(logging.WARNING)
        self._outcome = outcome
        self._damaged = damaged

    def __enter__(self) -> Self:
        logging.getLogger("barnabas").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("barnabas").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process()
        name = process.name if process is not None else ""
        if name and (record.levelno >= logging.ERROR or self._damaged in ("", name)):
            self._outcome.reports.append(f"{record.levelname} {name}: {record.getMessage()}")

    def take(self, simulation: Simulation) -> None:
        """Take what the simulation saw: failed starts are reports, all else is a violation."""
        failures = dict(simulation.history.start_failures)
        self._outcome.reports += [f"did not start: {name}: {text}" for name, text in failures.items()]
        # A damaged server may refuse to start, or stop: its log says why, or the
        # loss counts as silent.
        expected = [f"{name} does not start" for name in failures]
        if self._damaged:
            expected.append(f"{self._damaged} stopped serving")
        self._outcome.violations += [
            text for text in simulation.history.violations if not any(part in text for part in expected)
        ]


def disks_of(machines: Iterable[Machine]) -> Disks:
    """What is on the disks; no server may run."""
    return {
        machine.name: {path: bytes(inode.data) for path, inode in machine.disk.walk() if not path.startswith("/proc")}
        for machine in machines
    }


def fill(machine: Machine, disks: Disks, damage: Damage | None) -> None:
    """Put the stored files on a machine's disk, the damaged one among them."""
    contents: Mapping[str, bytes | None] = disks[machine.name]
    if damage is not None and damage.machine == machine.name:
        contents = {**contents, damage.path: damage.data}
    files = SimulatedFiles(machine.disk)
    if damage is not None and damage.machine == machine.name and damage.is_directory:
        files.make_dirs(damage.path)
    for path, data in contents.items():
        if data is None:
            continue
        files.make_dirs(path.rsplit("/", 1)[0])
        files.open(path, create=True).close()
        inode = machine.disk.inode(path)
        assert inode is not None
        inode.damage(data)


def kinds_of_bytes(path: str, data: bytes, rng: random.Random) -> list[tuple[int, str]]:
    """Positions to damage, one or two of each kind of byte, with the kind's name."""
    if _is_transaction_log(path):
        return _kinds_of_transaction_log(data)
    kinds: dict[str, list[int]] = {}
    if re.search(r"\.(log|index|timeindex|txnindex|snapshot)$|/snapshot\.[0-9a-f]+$", path):
        found = [(rng.randrange(len(data)), "a byte") for _ in range(4 if data else 0)]
        # A snapshot of a coordination server: its head, and behind its nodes their digest and the
        # last zxid, with checksums.
        ends = (1, 6, 14, 22, 30, 37, 43, 49, 60) if "/snapshot." in path else ()
        return [
            *found,
            *((len(data) - at, f"byte {at} from the end") for at in ends),
            *((at, "its head") for at in (1, 6) if ends),
        ]
    for at, byte in enumerate(data):
        text = chr(byte)
        kind = "digit" if text.isdigit() else "letter" if text.isalpha() else "space" if text.isspace() else "sign"
        line = data.count(b"\n", 0, at)
        kinds.setdefault(f"{kind} of line {min(line, 3)}", []).append(at)
    return [(at, kind) for kind, found in kinds.items() for at in rng.sample(found, min(2, len(found)))]


_ENTRY_FIELDS = {
    "checksum": (0, 8), "size": (8, 12), "session": (12, 20), "cxid": (20, 24), "zxid": (24, 32), "time": (32, 40),
    "type": (40, 44),
}  # fmt: skip
"""Of an entry of a coordination server's log: from which byte to which; the record, its digest
and the end byte follow."""


def _is_transaction_log(path: str) -> bool:
    return re.search(r"/log\.[0-9a-f]+$", path) is not None


def _entries(data: bytes) -> list[tuple[int, int]]:
    """Where each entry of a coordination server's log begins and ends."""
    found, at = [], 16
    while at + 12 <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12], "big")):
        found.append((at, at + 12 + size + 1))
        at = found[-1][1]
    return found


def _kinds_of_transaction_log(data: bytes) -> list[tuple[int, str]]:
    kinds = [(at, name) for at, name in ((2, "magic"), (7, "version"), (12, "dbid")) if at < len(data)]
    entries = _entries(data)
    for which, (start, end) in zip(
        ("first", "middle", "last"), entries[:1] + entries[len(entries) // 2 :][:1] + entries[-1:], strict=False
    ):
        kinds += [
            (start + (first + upto) // 2, f"{name} of the {which} entry")
            for name, (first, upto) in _ENTRY_FIELDS.items()
        ]
        kinds += [(end - 20, f"record of the {which} entry"), (end - 4, f"digest of the {which} entry")]
        kinds.append((end - 1, f"end of the {which} entry"))
    return kinds


def _larger_damages(disks: Disks, machine: str, path: str) -> Iterator[Damage]:
    """A coordination server's log or snapshot is cut, or has the content of another one."""
    data = disks[machine][path]
    folder, _, name = path.rpartition("/")
    alike = sorted(
        (each for each in disks[machine] if re.fullmatch(rf"{folder}/{name.partition('.')[0]}\.[0-9a-f]+", each)),
        key=lambda each: int(each.rpartition(".")[2], 16),
    )
    for other in alike:
        if other != path:
            yield Damage(machine, path, f"with the content of {other}", disks[machine][other])
    if not _is_transaction_log(path):
        yield Damage(machine, path, "without its last 20 bytes", data[:-20])
        return
    entries = _entries(data)
    yield Damage(machine, path, "cut in its header", data[:9])
    is_last = path == alike[-1]
    for number in {0, len(entries) // 2, len(entries) - 1} if entries else ():
        start, end = entries[number]
        yield Damage(machine, path, f"cut in entry {number}", data[: (start + end) // 2])
        yield Damage(machine, path, f"cut in the head of entry {number}", data[: start + 5])
        yield Damage(machine, path, f"cut before entry {number}", data[:start], is_end_of_log=is_last)


_NOT_COVERED = {"base offset": (0, 8), "length": (8, 12), "leader epoch": (12, 16), "magic": (16, 17)}
"""The fields of a batch's header that its CRC does not cover: their bytes."""


def damages_of_segment(disks: Disks, machine: str, path: str, rng: random.Random) -> Iterator[Damage]:
    """Each field that no CRC covers, in the first, a middle and the last batch.

    Cut, empty, missing, another one's content."""
    data = disks[machine][path]
    starts = [position for position, _ in read_headers(data)]
    for start in sorted({starts[0], starts[len(starts) // 2], starts[-1]} if starts else ()):
        for field_name, (first, after) in _NOT_COVERED.items():
            at, bit = start + rng.randrange(first, after), 1 << rng.randrange(8)
            flipped = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            yield Damage(machine, path, f"bit {bit:#x} of byte {at} ({field_name} at {start}) flipped", flipped)
    if len(starts) > 1:
        yield Damage(machine, path, "cut between two batches", data[: starts[len(starts) // 2]])
        yield Damage(machine, path, "cut inside a batch", data[: starts[-1] + 30])
    if data:
        yield Damage(machine, path, "empty", b"")
    yield Damage(machine, path, "missing", None)
    folder, _, name = path.rpartition("/")
    others = sorted(each for each in disks[machine] if each.startswith(f"{folder}/") and each.endswith(".log"))
    other = rng.choice([each for each in others if each != path])
    yield Damage(machine, path, f"the content of {other}", disks[machine][other])
    stray = f"{folder}/{int(name[:20]) + rng.randrange(1, 9):020d}.log"
    if stray not in others:
        yield Damage(machine, stray, f"a copy of {path}", data)


def damages_of(disks: Disks, machine: str, path: str, rng: random.Random) -> Iterator[Damage]:
    """A flipped bit and another digit for each kind of byte.

    Cut, empty, doubled, zeroed, missing."""
    data = disks[machine][path]
    for at, kind in kinds_of_bytes(path, data, rng):
        bit = 1 << rng.randrange(8)
        flipped = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        yield Damage(machine, path, f"bit {bit:#x} of byte {at} ({kind}) flipped", flipped)
        if chr(data[at]).isdigit():
            digit = rng.choice([each for each in b"0123456789" if each != data[at]])
            yield Damage(machine, path, f"byte {at} is {digit - 48}", data[:at] + bytes([digit]) + data[at + 1 :])
            yield Damage(machine, path, f"another digit before byte {at}", data[:at] + b"7" + data[at:])
    if data:
        yield Damage(machine, path, "cut by half", data[: len(data) // 2])
        yield Damage(machine, path, "empty", b"")
        yield Damage(machine, path, "zeros", bytes(len(data)))
    if re.search(r"/(log|snapshot)\.[0-9a-f]+$", path):
        yield from _larger_damages(disks, machine, path)
    last = max((int(each.rpartition(".")[2], 16) for each in disks[machine] if _is_transaction_log(each)), default=-1)
    is_last = _is_transaction_log(path) and int(path.rpartition(".")[2], 16) == last
    yield Damage(machine, path, "missing", None, is_end_of_log=is_last)
    yield Damage(machine, path, "a directory", None, is_directory=True)

"""One stored file is damaged, for each kind of byte of each file: nothing
acknowledged is lost in silence.

``BARNABAS_DAMAGES`` is how many damages are tried of each kind of cluster; 0 tries all.
"""

import os
import random
import re
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import pytest

from support.damage import Damage, Disks, damages_of, damages_of_segment
from support.damaged_brokers import start_damaged_cluster, store_cluster
from support.damaged_ensemble import start_damaged_ensemble, store_ensemble

DAMAGES = int(os.environ.get("BARNABAS_DAMAGES", "8"))
BROKER_FILES = re.compile(
    r"checkpoint|meta\.properties|partition\.metadata|\.kafka_cleanshutdown|boot_id|\.snapshot$|index$|barnabas-dense$"
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "small-files.md"
SERVER_FILES = re.compile(r"Epoch$|/myid$")
TRANSACTION_FILES = re.compile(r"/(log|snapshot)\.[0-9a-f]+$")


def kind_of_file(path: str) -> str:
    """The name of a file as the page of small files has it."""
    name = path.rpartition("/")[2]
    return re.sub(r"^.*(\.barnabas)$|^[0-9]{20}(\..*)$", r"*\1\2", name)


def sample(disks: Disks, machine: str, files: re.Pattern[str], seed: str) -> list[Damage]:
    """Damages of a machine's files: one of each kind of file, in any order, then
    another of each."""
    rng = random.Random(seed)
    kinds: dict[str, list[Damage]] = {}
    for path in sorted(disks[machine]):
        if files.search(path):
            kinds.setdefault(kind_of_file(path), []).extend(damages_of(disks, machine, path, rng))
    for damages in kinds.values():
        rng.shuffle(damages)
    in_turn = list(kinds.values())
    rng.shuffle(in_turn)
    found = [each for turn in zip_longest(*in_turn) for each in turn if each is not None]
    return found[: DAMAGES or len(found)]


def test_the_page_of_small_files_has_every_file_and_the_sweeps_damage_it() -> None:
    """Each row has a test; locks hold nothing."""
    stored, ensemble = store_cluster(1, clean=True), store_ensemble(3, is_stale=False, clean=True)
    paths = [*stored.disks["broker-0"], *ensemble.disks["zk-1"]]
    small = {
        kind_of_file(path) for path in paths if not re.search(r"\.deleted$|\.log$|/(log|snapshot)\.[0-9a-f]+$", path)
    }
    rows = set(re.findall(r"^\| `([^`]+)`", PAGE.read_text(), re.MULTILINE))
    assert small <= rows
    swept = {kind_of_file(path) for path in paths if BROKER_FILES.search(path) or SERVER_FILES.search(path)}
    assert small - swept == {".lock"}
    # Those that a healthy disk need not have are tested with the log.
    assert rows - small <= {
        "barnabas-lost-data",
        "barnabas-accepted-holes",
        ".barnabas_new",
        "*.txnindex",
        "cleaner-offset-checkpoint",
    }


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_damage_of_a_small_file_of_a_broker_loses_records_in_silence(
    brokers: int, clean: bool, record_property: Callable[[str, object], None]
) -> None:
    """With three replicas none is lost at all.

    A healthy disk raises no alarm, whatever the last stop was."""
    stored = store_cluster(brokers, clean=clean)
    faults = start_damaged_cluster(stored, None).faults(None, has_replicas=brokers > 1)
    damages = sample(stored.disks, "broker-0", BROKER_FILES, f"{brokers} {clean}")
    for damage in damages:
        faults += start_damaged_cluster(stored, damage).faults(damage, has_replicas=brokers > 1)
    record_property("damages", len(damages))
    record_property("lost in silence", len(faults))
    assert not faults


@pytest.mark.parametrize(
    ("servers", "is_stale", "clean"),
    [(1, False, False), (3, False, True), (3, True, False)],
    ids=["alone", "up to date", "stale"],
)
def test_no_damage_of_a_small_file_of_a_coordination_server_loses_writes_in_silence(
    servers: int, is_stale: bool, clean: bool, record_property: Callable[[str, object], None]
) -> None:
    """With three servers none is lost at all, though the damaged one was down for
    the last of them."""
    stored = store_ensemble(servers, is_stale=is_stale, clean=clean)
    name = min(stored.disks)
    faults = start_damaged_ensemble(stored, None).faults(None, has_replicas=servers > 1)
    damages = sample(stored.disks, name, SERVER_FILES, f"{servers} {clean}")
    for damage in damages:
        faults += start_damaged_ensemble(stored, damage).faults(damage, has_replicas=servers > 1)
    record_property("damages", len(damages))
    record_property("lost in silence", len(faults))
    assert not faults


@pytest.mark.parametrize(
    ("servers", "is_stale", "clean"),
    [(1, False, True), (1, False, False), (3, False, False), (3, True, True)],
    ids=["alone", "alone, crash", "up to date", "stale"],
)
def test_no_damage_of_a_transaction_log_or_a_snapshot_loses_writes_in_silence(
    servers: int, is_stale: bool, clean: bool, record_property: Callable[[str, object], None]
) -> None:
    """Each kind of byte of each file; cut, empty, missing, with another one's content.

    A healthy disk raises no alarm."""
    stored = store_ensemble(servers, is_stale=is_stale, clean=clean)
    name = min(stored.disks)
    faults = start_damaged_ensemble(stored, None).faults(None, has_replicas=servers > 1)
    damages = [
        each
        for each in sample(stored.disks, name, TRANSACTION_FILES, f"log {servers} {is_stale} {clean}")
        if servers > 1 or not each.is_end_of_log
    ]
    for damage in damages:
        faults += start_damaged_ensemble(stored, damage).faults(damage, has_replicas=servers > 1)
    record_property("damages", len(damages))
    record_property("lost in silence", len(faults))
    assert not faults


SEGMENTS = re.compile(r"/orders-0/[0-9]{20}\.log$")


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_damage_of_a_segment_loses_records_in_silence(
    brokers: int, clean: bool, record_property: Callable[[str, object], None]
) -> None:
    """Its headers, its size, its name and its place.

    With three replicas nothing before the log's end is lost at all. The broker that stops last is
    alone in the in-sync set, so a log that has lost its end leads, with an error line. A wrong
    checksum is the consumer's to find.
    """
    stored = store_cluster(brokers, clean=clean)
    rng = random.Random(f"segment {brokers} {clean}")
    damages = [
        each
        for path in sorted(stored.disks["broker-0"])
        if SEGMENTS.search(path)
        for each in damages_of_segment(stored.disks, "broker-0", path, rng)
    ]
    rng.shuffle(damages)
    last = max(path for path in stored.disks["broker-0"] if SEGMENTS.search(path))
    faults = []
    for damage in damages[: DAMAGES // 2 or len(damages)]:
        may_lose_end = clean and damage.path >= last
        outcome = start_damaged_cluster(stored, damage)
        faults += outcome.faults(damage, has_replicas=brokers > 1 and not may_lose_end)
    record_property("damages", len(damages[: DAMAGES // 2 or len(damages)]))
    record_property("lost in silence", len(faults))
    assert not faults

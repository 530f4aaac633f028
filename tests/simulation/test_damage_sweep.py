"""One stored file is damaged, for each kind of byte of each file: nothing acknowledged is lost in silence.

``BARNABAS_DAMAGES`` is how many damages are tried of each kind of cluster; 0 tries all.
"""

import os
import random
import re
from collections.abc import Callable

import pytest

from support.damage import Damage, Disks, damages_of
from support.damaged_brokers import start_damaged_cluster, store_cluster
from support.damaged_ensemble import start_damaged_ensemble, store_ensemble

DAMAGES = int(os.environ.get("BARNABAS_DAMAGES", "5"))
BROKER_FILES = re.compile(r"checkpoint|meta\.properties|partition\.metadata|\.kafka_cleanshutdown|boot_id|\.snapshot$")

SERVER_FILES = re.compile(r"Epoch$|/myid$")


def sample(disks: Disks, machine: str, files: re.Pattern[str]) -> list[Damage]:
    """Damages of a machine's files, in an order that has all kinds near its beginning."""
    rng = random.Random(7)
    found = [
        each for path in sorted(disks[machine]) if files.search(path) for each in damages_of(disks, machine, path, rng)
    ]
    rng.shuffle(found)
    return found[: DAMAGES or len(found)]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_damage_of_a_small_file_of_a_broker_loses_records_in_silence(
    brokers: int, clean: bool, record_property: Callable[[str, object], None]
) -> None:
    """With three replicas none is lost at all. A healthy disk raises no alarm, whatever the last stop was."""
    stored = store_cluster(brokers, clean=clean)
    faults = start_damaged_cluster(stored, None).faults(None, has_replicas=brokers > 1)
    damages = sample(stored.disks, "broker-0", BROKER_FILES)
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
    """With three servers none is lost at all, though the damaged one was down for the last of them."""
    stored = store_ensemble(servers, is_stale=is_stale, clean=clean)
    name = min(stored.disks)
    faults = start_damaged_ensemble(stored, None).faults(None, has_replicas=servers > 1)
    damages = sample(stored.disks, name, SERVER_FILES)
    for damage in damages:
        faults += start_damaged_ensemble(stored, damage).faults(damage, has_replicas=servers > 1)
    record_property("damages", len(damages))
    record_property("lost in silence", len(faults))
    assert not faults

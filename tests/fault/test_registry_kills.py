"""Three instances of the schema registry, whose leader is killed or stands still in the middle of
registrations: no id is given twice, and nothing that was acknowledged is lost.

``BARNABAS_KILLS`` sets how often (default 1; 12 for a full trial). Each second time the leader is
paused instead.
"""

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from barnabas.testing import Cluster
from support.registries import RegistryProcess, ask, avro_record, register
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]

KILLS = int(os.environ.get("BARNABAS_KILLS", "1"))
REGISTRATIONS = 10 * KILLS
"""Before, between and after the kills."""
LEADS = re.compile(r"(this instance|http\S+) leads \(generation (\d+)\)")
_QUICK_GROUP = {
    "kafkagroup_session_timeout_ms": "1500",
    "kafkagroup_heartbeat_interval_ms": "200",
    "leader_read_timeout_ms": "3000",
    "kafkastore_timeout_ms": "5000",
}
_WORKERS = 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A broker that lets sessions be short."""
    with Cluster(settings={"group.min.session.timeout.ms": "500"}) as made:
        yield made


@pytest.fixture
def instances(cluster: Cluster, tmp_path: Path) -> Iterator[list[RegistryProcess]]:
    """Three instances of one group; the first of them leads."""
    made = [RegistryProcess(tmp_path, f"sr{n}", cluster.bootstrap_servers, **_QUICK_GROUP) for n in range(3)]
    for each in made:  # one after another: the first one leads, and stays
        each.start()
        eventually(each.is_ready, what=f"{each.log} is ready")
    yield made
    for each in made:
        each.resume()
        each.stop()


class Registrations:
    """Threads that register schemas, each by one instance after another, and note the ids."""

    def __init__(self, instances: list[RegistryProcess]) -> None:
        self._instances = instances
        self._is_over = threading.Event()
        self.ids: dict[str, int] = {}
        """The ids that were acknowledged, by the names of the schemas."""
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(_WORKERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, worker: int) -> None:
        number = 0
        while not self._is_over.is_set():
            name = f"R{worker}n{number}"
            reply = register(self._instances[number % 3].url, f"{name}-value", avro_record(name), timeout_s=5)
            if reply.status == 200:
                self.ids[name] = reply.body["id"]
            number += 1

    def wait_for(self, more: int) -> None:
        """Wait until so many more were acknowledged."""
        wanted = len(self.ids) + more
        eventually(lambda: len(self.ids) >= wanted, what=f"{more} more registrations")


def assert_all_are_there(urls: list[str], ids: dict[str, int]) -> None:
    """Every acknowledged id is of its schema, on each instance, and of no other."""
    assert len(set(ids.values())) == len(ids)
    for url in urls:
        for name, schema_id in ids.items():
            eventually(
                lambda: ask(f"{url}/schemas/ids/{schema_id}/subjects").body == [f"{name}-value"],  # noqa: B023
                what=f"{name} at {url}",
            )


def leader_of(instances: list[RegistryProcess]) -> RegistryProcess:
    """The one that leads, as the group agreed on last."""
    found = [
        (int(generation), each.url if who == "this instance" else who)
        for each in instances
        for who, generation in LEADS.findall(each.log.read_text())
    ]
    url = max(found)[1]
    return next(each for each in instances if each.url == url)


def test_leader_that_is_killed_or_stands_still_loses_nothing(instances: list[RegistryProcess]) -> None:
    """Another one goes on behind the highest id; one that continues writes nothing of what it had
    begun, and follows."""
    with Registrations(instances) as registrations:
        registrations.wait_for(REGISTRATIONS)
        for number in range(KILLS):
            leader = leader_of(instances)
            if number % 2:
                leader.pause()
                registrations.wait_for(REGISTRATIONS)
                leader.resume()
            else:
                leader.kill()
                registrations.wait_for(REGISTRATIONS)
                leader.start()
            eventually(leader.is_ready)
        registrations.wait_for(REGISTRATIONS)
    assert_all_are_there([each.url for each in instances], registrations.ids)

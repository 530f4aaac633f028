"""Deaths that the controller does not see: its own with another broker's, and ours
where Apache's broker rules."""

from pathlib import Path

import pytest

from support.knowing import members_known, topic_known
from support.mixed import APACHES, OURS, MixedCluster, mixed_cluster
from support.needs import needs_reference
from support.servers import barnabas
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]

SESSION_S = 36  # what a coordination server grants is at most 40
LIMIT_S = SESSION_S - 10
SETTINGS = {"zookeeper.session.timeout.ms": f"{SESSION_S * 1000}"}


def live(cluster: MixedCluster) -> list[int]:
    return sorted(map(int, cluster.znodes.get_children("/brokers/ids")))


def prepare(cluster: MixedCluster, assignment: str) -> None:
    """A topic whose leaders all brokers have heard of; their lines to each other stand by then."""
    members_known(cluster.bootstrap, 3)
    made = barnabas("topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", "t",
                    "--replica-assignment", assignment)  # fmt: skip
    assert made.returncode == 0, made.stderr
    topic_known(cluster.bootstrap, "t", assignment.count(",") + 1)


def test_a_controller_and_another_broker_that_die_at_once_are_noticed_at_once(tmp_path: Path) -> None:
    """The third one saw both: it rules, and leads what they led, long before their sessions end."""
    with mixed_cluster(tmp_path, [OURS, OURS, OURS], settings=SETTINGS) as cluster:
        ruler = cluster.controller
        other, third = sorted({0, 1, 2} - {ruler})
        prepare(cluster, f"{ruler}:{third},{other}:{third}")
        processes = [cluster.members[broker].process for broker in (ruler, other)]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        eventually(lambda: live(cluster) == [third], timeout_s=LIMIT_S, what="both registrations are gone")
        eventually(
            lambda: {state["leader"] for state in cluster.states("t").values()} == {third},
            timeout_s=LIMIT_S,
            what="the third leads",
        )
        assert cluster.controller == third


@needs_reference
@pytest.mark.java
def test_our_brokers_witness_each_others_death_under_apaches_controller(tmp_path: Path) -> None:
    """Apache's controller elects a leader in the dead one's place as soon as its
    registration goes."""
    with mixed_cluster(tmp_path, [APACHES, OURS, OURS], settings=SETTINGS) as cluster:
        cluster.give_office_to(0)
        prepare(cluster, "1:2,1:0")
        cluster.kill(1)
        eventually(lambda: live(cluster) == [0, 2], timeout_s=LIMIT_S, what="the registration is gone")
        cluster.await_leader("t", 0, 2)
        cluster.await_leader("t", 1, 0)
        assert cluster.controller == 0

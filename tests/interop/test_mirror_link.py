"""Mirrors between named clusters: Apache's MirrorClient reads what they write, and
loops are prevented."""

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client import Admin, Producer
from barnabas.client.admin.offsets import LATEST, FoundOffset
from barnabas.mirror import MirrorMaker, MirrorSettings, TopicFilter
from barnabas.mirror.replication_policy import ReplicationPolicy
from barnabas.mirror.settings import LinkSettings
from barnabas.testing import Cluster
from support.needs import needs_reference
from support.reference import apache_tool
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
PROBE = Path(__file__).parents[1] / "support" / "MirrorProbe.java"
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@contextlib.contextmanager
def mirror(source: Cluster, target: Cluster, policy: ReplicationPolicy, topics: str = ".*") -> Iterator[MirrorMaker]:
    """A mirror maker in this process."""
    settings = MirrorSettings(
        consumer={"bootstrap.servers": source.bootstrap_servers, "group.id": "mirror"},
        producer={"bootstrap.servers": target.bootstrap_servers},
        topics=TopicFilter(topics),
        commit_interval_ms=200,
        topic_refresh_ms=200,
        link=LinkSettings(
            policy, sync_topic_configs=True, groups=re.compile("shop"), checkpoint_interval_ms=200, offset_lag_max=5
        ),
    )
    maker = MirrorMaker(settings)
    maker.start()
    try:
        yield maker
    finally:
        maker.stop()
        maker.wait()


def count(cluster: Cluster, topic: str, partitions: int = 2) -> int:
    """How many records a topic has; 0 if there is none."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        if topic not in admin.list_topics():
            return 0
        found = admin.list_offsets(dict.fromkeys((TopicPartition(topic, n) for n in range(partitions)), LATEST))
    return sum(each.offset for each in found.values() if isinstance(each, FoundOffset))


def send(cluster: Cluster, topic: str, records: int) -> None:
    """Records with keys."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send_many(topic, [str(number) for number in range(records)], keys=[str(n) for n in range(records)])


@pytest.mark.java
@needs_reference
@pytest.mark.parametrize("has_prefixes", [True, False], ids=["prefixed", "equal names"])
def test_apaches_mirror_client_translates_offsets_and_sees_the_way(
    has_prefixes: bool, barnabas_cluster: Cluster
) -> None:
    """RemoteClusterUtils reads our checkpoints, MirrorClient our heartbeats; a second
    mirror goes on from the first."""
    policy = ReplicationPolicy("a", "b", has_prefixes)
    remote = policy.remote("orders")
    with Cluster() as target, Admin({"bootstrap.servers": barnabas_cluster.bootstrap_servers}) as admin:
        admin.create_topic("orders", partitions=2, configs={"retention.ms": 3_600_000})
        send(barnabas_cluster, "orders", 100)
        places = [TopicPartition("orders", number) for number in range(2)]
        admin.delete_records({places[0]: 10})  # from here on the offsets differ
        ends = {place: each.offset for place, each in admin.list_offsets(dict.fromkeys(places, LATEST)).items()}
        admin.alter_group_offsets("shop", {places[0]: ends[places[0]], places[1]: ends[places[1]]})
        with mirror(barnabas_cluster, target, policy):
            eventually(lambda: count(target, remote) == 90, timeout_s=60, what="all is mirrored")
            for heartbeats in ("heartbeats", "a.heartbeats"):
                eventually(partial(count, target, heartbeats, 1), timeout_s=60, what=heartbeats)
            with Admin({"bootstrap.servers": target.bootstrap_servers}) as other:
                eventually(lambda: other.topic_configs(remote)["retention.ms"].value == "3600000", what="it follows")
        wanted = {f"{remote}-0": ends[places[0]] - 10, f"{remote}-1": ends[places[1]]}
        shown = probe(target, *([] if has_prefixes else [IDENTITY]))
        assert shown["offsets"] == "{" + ", ".join(f"{place}={offset}" for place, offset in wanted.items()) + "}"
        assert shown["upstream"] == "[a]"
        assert shown["hops"] == "1"
        assert set(shown["heartbeats"].strip("[]").split(", ")) >= {"a.heartbeats"}
        assert shown["checkpoints"] == "[a.checkpoints.internal]"
        assert shown["beat heartbeats"] == shown["beat a.heartbeats"] == "a b true"
        with mirror(barnabas_cluster, target, policy):
            send(barnabas_cluster, "orders", 10)
            eventually(lambda: count(target, remote) == 100, timeout_s=60, what="the rest is mirrored")
            admin.alter_topic_configs("orders", {"retention.ms": None})
            with Admin({"bootstrap.servers": target.bootstrap_servers}) as other:
                eventually(lambda: other.topic_configs(remote)["retention.ms"].is_default, what="it follows back")
        if has_prefixes:  # a JVM costs seconds
            assert probe(target)["offsets"] == shown["offsets"]


def probe(target: Cluster, *policy: str) -> dict[str, str]:
    """What Apache's client finds."""
    done = apache_tool(str(PROBE), target.bootstrap_servers, "a", "shop", *policy)
    assert done.returncode == 0, done.stderr
    lines = [re.match(r"(beat \S+|\S+) (.*)", line) for line in done.stdout.splitlines()]
    return {found[1]: found[2] for found in lines if found}


@pytest.mark.parametrize("has_prefixes", [True, False], ids=["prefixed", "equal names"])
def test_mirrors_in_both_directions_copy_each_record_once(has_prefixes: bool, barnabas_cluster: Cluster) -> None:
    """A record that came from a cluster is not copied back to it."""
    with Cluster() as other:
        clusters = {"a": barnabas_cluster, "b": other}
        for name, cluster in clusters.items():
            cluster.create_topic("orders", partitions=2)
            send(cluster, "orders", 10 if name == "a" else 20)
        there, back = (ReplicationPolicy(*names, has_prefixes) for names in (("a", "b"), ("b", "a")))
        with mirror(barnabas_cluster, other, there), mirror(other, barnabas_cluster, back):
            topics = (
                [("a", "b.orders", 20), ("b", "a.orders", 10)]
                if has_prefixes
                else [("a", "orders", 30), ("b", "orders", 30)]
            )

            def all_is_there() -> bool:
                return all(count(clusters[name], topic) == wanted for name, topic, wanted in topics)

            eventually(all_is_there, timeout_s=60, what="both directions")
            # What comes later is copied after all that could go round.
            for name, cluster in clusters.items():
                send(cluster, "later", 1)
                other_name = "b" if name == "a" else "a"
                remote = f"{name}.later" if has_prefixes else "later"
                wanted = 1 if has_prefixes or name == "a" else 2
                eventually(
                    lambda other_name=other_name, remote=remote, wanted=wanted: (
                        count(clusters[other_name], remote, 1) == wanted
                    ),
                    timeout_s=60,
                    what="the later record",
                )
            assert all_is_there()
            with Admin({"bootstrap.servers": other.bootstrap_servers}) as admin:
                assert not [
                    topic for topic in admin.list_topics() if topic.startswith("a.b.") and "heartbeats" not in topic
                ]

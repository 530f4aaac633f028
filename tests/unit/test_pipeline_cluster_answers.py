"""What the driver makes of a cluster that does not know, or does not know yet, what it is asked."""

from typing import Any

import pytest

pytest.importorskip("pyarrow")

from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster, MissingTopicError
from barnabas.pipelines.cluster.options import SourceOptions
from support.scripted_broker import TOPIC, ScriptedBroker, batch


def no_topics(answer: Any) -> Any:
    """What a broker with ZooKeeper says until its controller has sent it the topics."""
    answer.topics = []
    return answer


@pytest.mark.parametrize("subscription", [{"subscribe": TOPIC}, {"subscribePattern": "t.*"}], ids=["names", "pattern"])
def test_a_broker_that_has_just_started_is_asked_until_it_has_heard_of_the_topics(
    subscription: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were there, and it knows none at all.

    A query that never saw them learns soon that there are none."""
    monkeypatch.setattr("barnabas.pipelines.cluster.kafka_cluster._NEWS_S", 0.0)
    monkeypatch.setattr("barnabas.pipelines.cluster.kafka_cluster._PAUSE_S", 0.01)
    with ScriptedBroker([batch(0, 9)]) as broker:
        options = SourceOptions.parse({"kafka.bootstrap.servers": broker.address, **subscription}, streaming=True)
        cluster = KafkaCluster(options)
        broker.metadata_turns.extend([no_topics] * 20)
        assert cluster.partitions(were_there=True) == [TopicPartition(TOPIC, 0)]
        broker.metadata_turns.extend([no_topics] * 20)
        if "subscribe" in subscription:
            with pytest.raises(MissingTopicError, match="topic t does not exist on"):
                cluster.partitions()
        else:
            assert cluster.partitions() == []


def test_topics_that_do_not_come_back_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that the cluster has to answer."""
    monkeypatch.setattr("barnabas.pipelines.cluster.kafka_cluster._PAUSE_S", 0.01)
    with ScriptedBroker([batch(0, 9)]) as broker:
        given = {"kafka.bootstrap.servers": broker.address, "subscribe": TOPIC}
        cluster = KafkaCluster(SourceOptions.parse(given, streaming=True), timeout_ms=1)
        broker.metadata_turns.extend([no_topics] * 1000)
        with pytest.raises(MissingTopicError, match="topic t does not exist on"):
            cluster.partitions(were_there=True)

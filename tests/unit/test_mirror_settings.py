"""What is mirrored, and the safe properties."""

from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.cli.main import main
from barnabas.cli.servers import mirror_maker
from barnabas.client.properties.translation import plan_producer
from barnabas.mirror.settings import (
    MirrorSettings,
    TopicFilter,
    consumer_properties,
    ignored_properties,
    producer_properties,
)


@pytest.mark.parametrize(
    ("include", "exclude", "chosen"),
    [
        (".*", None, {"a", "ab", "b.c"}),
        ('".*"', "a", {"ab", "b.c"}),
        ("a", None, {"a"}),
        ("a,b.*", None, {"a", "b.c"}),
        (".*", "a.*", {"b.c"}),
        ("c", None, set()),
    ],
)
def test_topics_are_chosen_by_their_whole_name(include: str, exclude: str | None, chosen: set[str]) -> None:
    """As Java matches; a comma is an "or"; the clusters' own topics never."""
    topics = ["a", "ab", "b.c", "__consumer_offsets", "__transaction_state"]
    assert TopicFilter(include, exclude).choose(topics) == chosen


def test_the_class_of_kafkas_mirror_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """run-class kafka.tools.MirrorMaker, with the --new.consumer of older tutorials."""
    file = tmp_path / "both.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    words = ["--new.consumer", "--consumer.config", str(file), "--num.streams", "2", "--producer.config", str(file)]
    assert main(["run-class", "kafka.tools.MirrorMaker", *words, "--whitelist=.*"]) == 1
    assert "127.0.0.1:1 refused the connection" in capsys.readouterr().err


def test_a_pattern_that_is_none_is_refused() -> None:
    """The option and the reason."""
    with pytest.raises(ConfigError, match=r"--include \(: this is not a regular expression"):
        TopicFilter("(")
    with pytest.raises(ConfigError, match=r"--exclude \[: this is not a regular expression"):
        TopicFilter(".*", "[")
    with pytest.raises(ConfigError, match=r"; the shell pattern \(glob\) would be \.\*\\\.orders$"):
        TopicFilter("*.orders")


def test_the_notes_properties_files_are_enough() -> None:
    """The names of the first clients, and what the mirror adds to lose nothing."""
    consumer = consumer_properties(
        {
            "zookeeper.connect": "localhost:2181",
            "zookeeper.connection.timeout.ms": "1000000",
            "group.id": "test-consumer-group",
            "consumer.timeout.ms": "5000",
        },
        1,
    )
    assert consumer["enable.auto.commit"] == "false"
    assert consumer["auto.offset.reset"] == "earliest"
    assert consumer["client.id"] == "test-consumer-group-1"
    assert "consumer.timeout.ms" not in consumer
    producer = producer_properties(
        {
            "metadata.broker.list": "localhost:9092",
            "partitioner.class": "kafka.producer.DefaultPartitioner",
            "producer.type": "sync",
            "compression.codec": "none",
            "serializer.class": "kafka.serializer.DefaultEncoder",
        }
    )
    assert producer["acks"] == "all"
    assert producer["enable.idempotence"] == "true"
    assert "serializer.class" not in producer
    plan = plan_producer(producer)
    assert (plan.librdkafka["linger.ms"], plan.librdkafka["compression.type"]) == ("0", "none")
    assert plan.partitioner == "keyed_round_robin"


def test_a_users_weaker_acknowledgement_stands_but_order_is_kept() -> None:
    """acks=1 excludes idempotence, so one request is in flight at a time."""
    producer = producer_properties({"request.required.acks": "1"})
    assert "acks" not in producer
    assert "enable.idempotence" not in producer
    assert producer["max.in.flight.requests.per.connection"] == "1"


def test_a_mirror_without_a_group_is_refused() -> None:
    """Without a group there is no place to go on from."""
    with pytest.raises(ConfigError, match=r"group\.id is missing"):
        consumer_properties({"bootstrap.servers": "a:1"}, 0)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([], "one of --include and --whitelist is needed"),
        (["--include", "a", "--message.handler", "x.Y"], "--message.handler is not supported: handlers are Java"),
        (["--include", "a", "--num.streams", "0"], "0 is not positive"),
    ],
)
def test_a_mirror_command_line_that_makes_no_sense_ends_with_2(
    extra: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not supported is refused, not ignored."""
    with pytest.raises(SystemExit) as stop:
        mirror_maker.main(["--consumer.config", "c", "--producer.config", "p", *extra])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_properties_that_the_mirror_does_not_follow_are_reported_with_the_reason() -> None:
    """None is dropped in silence; one that asks for what happens anyway is no reason to warn."""
    settings = MirrorSettings(
        consumer={"consumer.timeout.ms": "5000", "auto.commit.interval.ms": "1000", "enable.auto.commit": "false"},
        producer={"queue.enqueue.timeout.ms": "-1", "max.block.ms": "5", "serializer.class": "x.Y"},
        topics=TopicFilter(".*"),
    )
    assert [warning.partition(" is ignored")[0] for warning in ignored_properties(settings)] == [
        "consumer.timeout.ms of the consumer",
        "auto.commit.interval.ms of the consumer",
        "queue.enqueue.timeout.ms of the producer",
        "max.block.ms of the producer",
        "serializer.class of the producer",
    ]


def test_a_pattern_that_can_match_one_letter_names_only_is_reported_with_the_one_that_was_meant() -> None:
    """``./*`` is any character and then slashes."""
    assert TopicFilter("a,./*").warnings == ["./* matches no topic of more than one letter; .* matches all topics"]
    assert TopicFilter(".*", "./+").warnings == ["./+ matches no topic of more than one letter; .* matches all topics"]
    assert TopicFilter(".").warnings == [". matches no topic of more than one letter; .* matches all topics"]
    assert TopicFilter(".*", "a.*").warnings == []
    said = ignored_properties(MirrorSettings(consumer={}, producer={}, topics=TopicFilter("./*")))
    assert said == ["./* matches no topic of more than one letter; .* matches all topics"]

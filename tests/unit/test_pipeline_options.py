"""Options of the Spark format ``barnabas``."""

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.offsets import EARLIEST, LATEST
from barnabas.pipelines.cluster.options import SinkOptions, SourceOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_options_are_understood_in_lower_case() -> None:
    """Spark's dictionary gives lower-case names when it is copied; none may be lost that way."""
    options = SourceOptions.parse(
        {
            **SERVERS,
            "subscribe": "a, b",
            "startingoffsets": "earliest",
            "maxoffsetspertrigger": "7",
            "includeheaders": "true",
        },
        streaming=True,
    )
    assert options.topics == ("a", "b")
    assert options.start.mark == EARLIEST
    assert options.max_offsets_per_trigger == 7
    assert options.include_headers


def test_defaults_are_those_of_sparks_connector() -> None:
    """A stream begins at the latest offset, a batch at the earliest; lost data is an error."""
    stream = SourceOptions.parse({**SERVERS, "subscribe": "t"}, streaming=True)
    batch = SourceOptions.parse({**SERVERS, "subscribe": "t"}, streaming=False)
    assert (stream.start.mark, batch.start.mark, batch.end.mark) == (LATEST, EARLIEST, LATEST)
    assert stream.fail_on_data_loss


def test_kafka_options_pass_through_without_their_prefix() -> None:
    """What begins with kafka. goes to librdkafka."""
    options = SourceOptions.parse(
        {**SERVERS, "subscribe": "t", "kafka.isolation.level": "read_committed"}, streaming=True
    )
    assert options.kafka == {"bootstrap.servers": "localhost:9092", "isolation.level": "read_committed"}


def test_partitions_can_be_assigned() -> None:
    """The JSON of assign names topics and lists of partitions."""
    options = SourceOptions.parse({**SERVERS, "assign": '{"t": [2, 0]}'}, streaming=True)
    assert options.assigned == (TopicPartition("t", 2), TopicPartition("t", 0))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "exactly one of subscribe"),
        ({"subscribe": "t", "assign": "{}"}, "exactly one of subscribe"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"assign": '{"t": 1}'}, "assign looks like"),
        ({"assign": '{"t": [0.5]}'}, "assign looks like"),
        ({"assign": '{"t": ["1"]}'}, "assign looks like"),
        ({"assign": '{"t": [true]}'}, "assign looks like"),
        ({"assign": '{"t": [-1]}'}, "assign looks like"),
        ({"assign": '{"t": []}'}, "names no partition"),
        ({"subscribe": "t", "startingTimestamp": "1_000"}, "startingTimestamp is a number, not '1_000'"),
        ({"subscribe": "t", "startingTimestamp": "9223372036854775808"}, "startingTimestamp is a number"),
        ({"subscribe": "t", "startingTimestamp": "-1"}, "startingTimestamp is -1, and cannot be negative"),
        ({"subscribe": "t", "startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "-1 is no time for t-0"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "unknown option startingOffset"),
        ({"subscribe": "t", "startingOffsets": "first"}, "startingOffsets: offsets are no JSON"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "a stream has no end"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "0"}, "must be above 0"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "many"}, "is a number"),
        ({"subscribe": "t", "maxTriggerDelay": "a while"}, "is a time such as 90s, 15m or 1h"),
        (
            {"subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger is 9, which is above",
        ),
        ({"subscribe": "t", "failOnDataLoss": "maybe"}, "true or false"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
    ],
)
def test_wrong_options_are_refused_with_what_is_wrong(given: dict[str, str], problem: str) -> None:
    """Nothing is ignored silently."""
    with pytest.raises(ConfigError, match=problem):
        SourceOptions.parse({**SERVERS, **given}, streaming=True)


@pytest.mark.parametrize(("text", "delay_ms"), [("90s", 90_000), ("15m", 900_000), ("1 h", 3_600_000), ("250", 250)])
def test_delays_are_times_with_units(text: str, delay_ms: int) -> None:
    """As Spark's connector takes them."""
    options = SourceOptions.parse({**SERVERS, "subscribe": "t", "maxTriggerDelay": text}, streaming=True)
    assert options.max_trigger_delay_ms == delay_ms


def test_servers_are_required() -> None:
    """Neither source nor sink guesses a cluster."""
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        SourceOptions.parse({"subscribe": "t"}, streaming=True)
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        SinkOptions.parse({"topic": "t"})


def test_a_batch_that_could_read_nothing_is_refused() -> None:
    """A batch from the latest offset, or to the earliest, is a mistake."""
    with pytest.raises(ConfigError, match="would read nothing"):
        SourceOptions.parse({**SERVERS, "subscribe": "t", "startingOffsets": "latest"}, streaming=False)
    with pytest.raises(ConfigError, match="would read nothing"):
        SourceOptions.parse({**SERVERS, "subscribe": "t", "endingOffsets": "earliest"}, streaming=False)


def test_java_names_of_protection_are_taken_and_less_of_it_is_refused() -> None:
    """A program of Spark's own connector keeps its options; a password that would not be used, or a
    typing error, is an error."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="pw";'
    java = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas}
    found = SinkOptions.parse({**SERVERS, **java}).kafka
    assert (found["sasl.username"], found["sasl.password"]) == ("ann", "pw")
    assert "sasl.jaas.config" not in found
    for name, text in (("sasl.password", "pw"), ("security.protocl", "SSL"), ("sasl.jaas.config", "Module required;")):
        with pytest.raises(ConfigError, match=rf"kafka\.{name}"):
            SourceOptions.parse({**SERVERS, "subscribe": "t", f"kafka.{name}": text}, streaming=True)

"""The consoles' readers and formatters, and the options they refuse."""

from typing import Any

import pytest

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.cli.console import console_consumer, console_producer
from barnabas.cli.console.formatters import formatter
from barnabas.cli.console.line_reader import Line, LineReader
from barnabas.client.records import Record
from barnabas.wire.kafka.codec import encode
from barnabas.wire.kafka.coordinator_records import TransactionLogValue, TransactionPartitions


def record(**fields: object) -> Record:
    """A record with what the test does not care about filled in."""
    values = {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "key": b"k",
        "value": b"v",
        "timestamp_ms": 5,
        "timestamp_type": 0,
        "headers": (),
    }
    return Record(**{**values, **fields})


def written(version: int, **others: Any) -> bytes:
    """The state of a transactional id as it stands in a log, behind its version."""
    state = TransactionLogValue(
        producer_id=5,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[TransactionPartitions(topic="orders", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=8,
        transaction_start_timestamp_ms=7,
        **others,
    )
    return version.to_bytes(2, "big") + encode(state, version)


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"a\tb\n", Line(None, b"a\tb", [])),
        ({}, b"dos\r\n", Line(None, b"dos", [])),
        ({}, b"\xff\xfe", Line(None, b"\xff\xfe", [])),
        ({"parse.key": "true"}, b"k\tv\tw\n", Line(b"k", b"v\tw", [])),
        ({"parse.key": "TRUE", "key.separator": "::"}, b"k::v\n", Line(b"k", b"v", [])),
        ({"parse.key": "true", "ignore.error": "true"}, b"no key\n", Line(None, b"no key", [])),
        ({"parse.headers": "true"}, b"a:1,b:2\tv\n", Line(None, b"v", [("a", b"1"), ("b", b"2")])),
        ({"parse.headers": "true", "parse.key": "true"}, b"a:1\tk\tv\n", Line(b"k", b"v", [("a", b"1")])),
        ({"parse.key": "true", "null.marker": "NULL"}, b"NULL\tNULL\n", Line(None, None, [])),
        ({"parse.headers": "true"}, b"a:\xff\tv\n", Line(None, b"v", [("a", b"\xff")])),
        ({"parse.headers": "true", "null.marker": "-"}, b"-\tv\n", Line(None, b"v", [])),
        ({"parse.headers": "true", "null.marker": "-"}, b"h:-\tv\n", Line(None, b"v", [("h", None)])),
        ({"parse.headers": "true", "ignore.error": "true"}, b"h\tv\n", Line(None, b"v", [("h", None)])),
    ],
)
def test_a_line_becomes_the_record_that_the_properties_describe(properties: dict, line: bytes, expected: Line) -> None:
    """As Kafka's LineMessageReader reads it."""
    assert list(LineReader(properties).read([line])) == [expected]


@pytest.mark.parametrize(
    ("properties", "line", "message"),
    [
        ({"parse.key": "true"}, b"no key", "No key separator found on line number 1: 'no key'"),
        ({"parse.headers": "true"}, b"a:1 v", "No headers delimiter found"),
        ({"parse.headers": "true"}, b"a\tv", "No header key separator found in pair 'a'"),
        ({"parse.headers": "true"}, b"a\xff:1\tv", r"The header key 'a.xff' on line number 1 is not UTF-8"),
        ({"parse.headers": "true", "null.marker": "N"}, b"N:1\tv", "Header keys should not be equal"),
    ],
)
def test_a_line_without_its_parts_is_refused_by_number(properties: dict, line: bytes, message: str) -> None:
    """The message says which line and what it lacks."""
    with pytest.raises(BarnabasError, match=message):
        list(LineReader(properties).read([line]))


@pytest.mark.parametrize(
    "properties",
    [
        {"headers.delimiter": ","},
        {"headers.separator": ":"},
        {"headers.key.separator": "\t"},
        {"null.marker": "\t"},
        {"null.marker": ","},
        {"key.separator": ""},
    ],
)
def test_ambiguous_separators_are_refused(properties: dict) -> None:
    """Contradictory properties end before anything is read."""
    with pytest.raises(ConfigError, match="may not be"):
        LineReader(properties)


ALL = dict.fromkeys(["timestamp", "partition", "offset", "headers", "key", "value"], "true")


@pytest.mark.parametrize(
    ("properties", "shown", "expected"),
    [
        ({}, record(), b"v\n"),
        ({}, record(value=None), b"null\n"),
        ({"print.key": "true"}, record(), b"k\tv\n"),
        ({"print.key": "true", "key.separator": "-", "line.separator": "|"}, record(), b"k-v|"),
        ({"print.value": "false"}, record(), b""),
        ({"print.value": "false", "print.key": "true"}, record(key=None), b"null\n"),
        (
            {f"print.{name}": "true" for name in ALL},
            record(headers=[("a", b"1"), ("b", None)]),
            b"CreateTime:5\tPartition:2\tOffset:7\ta:1,b:null\tk\tv\n",
        ),
        ({"print.headers": "true"}, record(), b"NO_HEADERS\tv\n"),
        ({"print.timestamp": "true"}, record(timestamp_type=1), b"LogAppendTime:5\tv\n"),
        ({"print.timestamp": "true"}, record(timestamp_ms=None, timestamp_type=-1), b"NO_TIMESTAMP\tv\n"),
        ({"print.timestamp": "true"}, record(timestamp_ms=None), b"CreateTime:-1\tv\n"),
        ({"null.literal": "NIL"}, record(value=None), b"NIL\n"),
        (
            {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"},
            record(value=(300).to_bytes(8, "big")),
            b"300\n",
        ),
    ],
)
def test_the_default_formatter_prints_as_kafkas_does(properties: dict, shown: Record, expected: bytes) -> None:
    """Columns in Kafka's order, separated and ended in its way."""
    assert formatter("default", properties)(shown) == expected


def test_formatters_answer_to_javas_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Command lines written for Kafka's tool work."""
    assert formatter("kafka.tools.DefaultMessageFormatter", {})(record()) == b"v\n"
    assert formatter("org.apache.kafka.tools.consumer.NoOpMessageFormatter", {})(record()) == b""
    assert formatter("kafka.tools.LoggingMessageFormatter", {})(record(key=None)) == b"v\n"
    assert capsys.readouterr().err == "CreateTime:5, key:null value:v\n"
    with pytest.raises(ConfigError, match="there is no formatter kafka.tools.Nonsense"):
        formatter("kafka.tools.Nonsense", {})


STATE_KEY = b"\0\0\0\x02id"
KEY_TEXT = '"key":{"version":0,"data":{"transactionalId":"id"}}'
STATE_TEXT = (
    '"producerEpoch":1,"transactionTimeoutMs":60000,"transactionStatus":1,'
    '"transactionPartitions":[{"topic":"orders","partitionIds":[0,2]}],'
    '"transactionLastUpdateTimestampMs":8,"transactionStartTimestampMs":7'
)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (STATE_KEY, written(0), f'{KEY_TEXT},"value":{{"version":0,"data":{{"producerId":5,{STATE_TEXT}}}}}'),
        (STATE_KEY, written(1), f'{KEY_TEXT},"value":{{"version":1,"data":{{"producerId":5,{STATE_TEXT}}}}}'),
        (
            STATE_KEY,
            written(1, previous_producer_id=4, client_transaction_version=2),
            f'{KEY_TEXT},"value":{{"version":1,"data":{{"producerId":5,"previousProducerId":4,{STATE_TEXT},'
            '"clientTransactionVersion":2}}',
        ),
        (STATE_KEY, None, f'{KEY_TEXT},"value":null'),
        (None, None, '"key":null,"value":null'),
        (b"\0\x05?", b"\xff\xfd?", '"key":{"version":5,"data":"unknown"},"value":{"version":-3,"data":"unknown"}'),
    ],
)
def test_states_of_transactions_are_printed_as_kafkas_formatter_does(
    key: bytes | None, value: bytes | None, expected: str
) -> None:
    """The lines are those of Kafka 3.9.1, with the tagged fields of Kafka 4 that are set."""
    for name in ("transactionlog", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"):
        assert formatter(name, {})(record(key=key, value=value)).decode() == f"{{{expected}}}\n"


def test_a_state_that_is_cut_off_is_an_error() -> None:
    """The consumer says which record cannot be shown."""
    with pytest.raises(BarnabasError):
        formatter("transactionlog", {})(record(key=STATE_KEY, value=written(1)[:-3]))


BROKER = ["--bootstrap-server", "localhost:1"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*BROKER], "Exactly one of --include/--topic is required."),
        ([*BROKER, "--topic", "t", "--include", "u"], "Exactly one of --include/--topic is required."),
        (["--topic", "t"], 'Missing required argument "[bootstrap-server]"'),
        (["--topic", "t", "--zookeeper", "localhost:2181"], "give a broker instead"),
        ([*BROKER, "--include", "t", "--partition", "0"], "The topic is required when partition is specified."),
        ([*BROKER, "--topic", "t", "--offset", "3"], "The partition is required when offset is specified."),
        ([*BROKER, "--topic", "t", "--partition", "0", "--group", "g"], "group and partition cannot be"),
        ([*BROKER, "--topic", "t", "--group", "g", "--consumer-property", "group.id=h"], "do not match"),
        ([*BROKER, "--include", "["], "[ is not a regular expression"),
        (
            [*BROKER, "--topic", "t", "--partition", "0", "--offset", "-4"],
            "The provided offset value '-4' is incorrect",
        ),
        ([*BROKER, "--topic", "t", "--partition", "x"], "invalid int value"),
    ],
)
def test_a_consumer_command_line_that_makes_no_sense_ends_with_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage errors say what is wrong, on standard error."""
    with pytest.raises(SystemExit) as stop:
        console_consumer.main(argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_the_beginning_and_a_contrary_reset_exclude_each_other() -> None:
    """--from-beginning with auto.offset.reset=latest fails, as Kafka's tool does."""
    with pytest.raises(ConfigError, match="Can't simultaneously specify --from-beginning"):
        console_consumer.main(
            [*BROKER, "--topic", "t", "--from-beginning", "--consumer-property", "auto.offset.reset=largest"]
        )


def test_a_producer_without_brokers_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Either name of the brokers' option will do, but one is needed."""
    with pytest.raises(SystemExit) as stop:
        console_producer.main(["--topic", "t"])
    assert stop.value.code == 2
    assert "bootstrap-server" in capsys.readouterr().err

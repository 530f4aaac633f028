"""A partition with a batch that no consumer can read, from before brokers opened
them, or from a disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.console import console_consumer
from barnabas.cli.groups import consumer_groups
from barnabas.client import BYTES, Consumer, DamagedBatchError
from barnabas.testing import Cluster
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES, assign_offsets, seal
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch

pytestmark = [pytest.mark.interop]

CODECS = [kind for kind in CompressionType if kind]


def batch(first: int, codec: CompressionType) -> bytearray:
    records = [Record(first + number, 1000, None, b"value %d" % (first + number)) for number in range(3)]
    found = build_batch(records, compression=codec)
    assign_offsets(found, 0, first, 0)
    return found


def damaged(first: int, codec: CompressionType) -> bytearray:
    """Its header is right, and its body is junk."""
    header = HEADER.unpack_from(batch(first, codec))
    junk = b"this is no compressed body " * 5
    found = bytearray(HEADER.pack(header[0], HEADER_BYTES - 12 + len(junk), *header[2:])) + junk
    seal(found)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A topic for each codec, with a batch that cannot be read between two sound ones."""
    data_dir = tmp_path_factory.mktemp("data")
    with Cluster(data_dir=data_dir) as first:
        for codec in CODECS:
            first.create_topic(codec.name)
    for codec in CODECS:
        (log,) = Path(data_dir).rglob(f"{codec.name}-0/00000000000000000000.log")
        log.write_bytes(batch(0, codec) + damaged(3, codec) + batch(6, codec))
    with Cluster(data_dir=data_dir) as again:
        yield again


def offsets(consumer: Consumer[bytes, bytes], count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        record = consumer.poll(10.0)
        assert record is not None
        found.append(record.offset)
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_a_consumer_hands_out_what_stands_before_a_damaged_batch_then_names_it(
    cluster: Cluster, codec: CompressionType
) -> None:
    """The error comes each time, until the consumer seeks to what stands behind."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer(servers, deserializer=BYTES, key_deserializer=BYTES) as consumer:
        consumer.assign([TopicPartition(codec.name, 0)])
        assert offsets(consumer, 3) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(DamagedBatchError, match=f"{codec.name}-0 offset 3: .*console-consumer") as raised:
                consumer.poll(10.0)
            assert (raised.value.topic, raised.value.partition, raised.value.offset) == (codec.name, 0, 3)
        consumer.seek(codec.name, 0, 6)
        assert offsets(consumer, 3) == [6, 7, 8]


@pytest.mark.parametrize("codec", CODECS)
def test_the_console_consumer_prints_what_can_be_read_and_how_to_go_on(
    cluster: Cluster, codec: CompressionType, capfd: pytest.CaptureFixture[str]
) -> None:
    """Partition, offsets, codec and reason stand in the error, and commands that
    work as they are."""
    read = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", codec.name, "--timeout-ms", "5000"]
    with pytest.raises(BarnabasError) as raised:
        console_consumer.main([*read, "--from-beginning"])
    text = str(raised.value)
    assert f"{codec.name}-0: the batch with offsets 3 to 5 ({codec.name.lower()}, " in text
    assert "cannot be read: " in text
    assert capfd.readouterr().out.split("\n")[:-1] == ["value 0", "value 1", "value 2"]
    assert console_consumer.main([*read, *text.split(f"--topic {codec.name} ")[-1].split()]) == 0
    assert capfd.readouterr().out.split("\n")[:-1] == ["value 6", "value 7", "value 8"]


def test_a_group_goes_on_behind_a_damaged_batch_with_the_command_that_is_named(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its next member begins with the record behind the batch."""
    topic = CompressionType.LZ4.name
    read = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--timeout-ms", "5000", "--group", "g"]
    with pytest.raises(BarnabasError) as raised:
        console_consumer.main([*read, "--from-beginning"])
    (line,) = (line for line in str(raised.value).split("\n") if "consumer-groups" in line)
    command = line.split("barnabas consumer-groups ")[1].replace("GROUP", "g").split()
    assert consumer_groups.main(command) == 0
    capfd.readouterr()
    assert console_consumer.main(read) == 0
    assert capfd.readouterr().out.split("\n")[:-1] == ["value 6", "value 7", "value 8"]

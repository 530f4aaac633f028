"""dump-log: what it prints of each kind of file, and what it says of files that are
not as they should be."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.cli.log_files import dump_log
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.records import Record, build_batch

NOW = 1_700_000_000_000
TP = TopicPartition("t", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition with three batches of two records, closed cleanly."""
    config = LogConfig({"index.interval.bytes": "0"})
    dirs = LogDirs(OsFiles(), [str(tmp_path)], config, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    log = dirs.get_or_create(TP, Uuid(bytes(range(16))), config, NOW)
    for number in range(3):
        records = [Record(i, NOW + number, b"key", b"value %d" % i, [("h", b"")]) for i in range(2)]
        data = build_batch(records, producer_id=4, producer_epoch=1, base_sequence=2 * number)
        log.append_as_leader(data, leader_epoch=6, now_ms=NOW)
    dirs.close(clean=True)
    return tmp_path / "t-0"


def test_batches_records_and_contents_are_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two lines a batch at least, as Kafka's tool words them."""
    path = folder / f"{0:020d}.log"
    assert dump_log.main(["--files", str(path), "--print-data-log"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 4 producerEpoch: 1 "
        "partitionLeaderEpoch: 6 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {NOW} size: "
    )
    assert lines[2].endswith("isvalid: true")
    assert lines[4] == (
        f"| offset: 1 CreateTime: {NOW} keySize: 3 valueSize: 7 sequence: 1 headerKeys: [h] key: key payload: value 1"
    )
    assert len(lines) == 2 + 3 * 3


def test_several_files_come_by_commas_and_by_spaces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a shell's pattern gives them."""
    paths = [str(path) for path in sorted(folder.iterdir()) if path.suffix in (".log", ".index", ".snapshot")]
    assert dump_log.main(["--files", ",".join(paths[:2]), *paths[2:], "--max-bytes", "1"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("Dumping")] == [f"Dumping {path}" for path in paths]
    assert "offset: 3 position:" in out
    assert "producerId: 4 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty" in out


def test_json_is_a_document_for_each_batch_record_and_entry(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the names that the text has, and nothing else on standard output."""
    paths = [str(path) for path in sorted(folder.iterdir()) if path.suffix in (".log", ".index", ".snapshot")]
    assert dump_log.main(["--files", *paths, "--print-data-log", "--output", "json"]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {document["file"] for document in documents} == set(paths)
    assert Counter(document["kind"] for document in documents) == {
        "batch": 3,
        "record": 6,
        "indexEntry": 2,
        "producer": 1,
    }
    log = [document for document in documents if document["file"].endswith(".log")]
    batch, record = log[:2]
    assert (batch["kind"], batch["baseOffset"], batch["deleteHorizonMs"], batch["isvalid"]) == ("batch", 0, None, True)
    assert record == {
        "file": batch["file"],
        "kind": "record",
        "offset": 0,
        "CreateTime": NOW,
        "keySize": 3,
        "valueSize": 7,
        "sequence": 0,
        "headerKeys": ["h"],
        "key": "key",
        "payload": "value 0",
    }


def test_keys_and_values_can_be_printed_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the blanks of Kafka's tool, which writes the bar before the key."""
    path = folder / f"{0:020d}.log"
    assert dump_log.main(["--files", str(path), "--print-data-log", "--skip-record-metadata"]) == 0
    assert capsys.readouterr().out.splitlines()[3] == "| key: key payload: value 0"


def test_damage_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A torn tail in place, an index that lies at the end, on standard error."""
    log, index = folder / f"{0:020d}.log", folder / f"{0:020d}.index"
    log.write_bytes(log.read_bytes()[:-1])
    data = bytearray(index.read_bytes())
    data[3] ^= 1
    index.write_bytes(data)
    assert dump_log.main(["--files", f"{log},{index}", "--verify-index-only"]) == 0
    printed = capsys.readouterr()
    assert "invalid bytes at the end of 00000000000000000000.log" in printed.out
    assert printed.err.splitlines()[0] == f"Mismatches in :{index}"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--value-decoder-class", "com.example.Own"], "cannot be loaded here"),
        (["--index-sanity-check"], "there is no such file"),
        (["--files", "/no/such/leader-epoch-checkpoint"], "/no/such/leader-epoch-checkpoint: there is no such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    """And the tool ends with 1."""
    assert dump_log.main(["--files", str(tmp_path / f"{0:020d}.log"), *arguments]) == 1
    assert complaint in capsys.readouterr().err


def test_records_of_the_offsets_topic_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A commit, its deletion, and a record of a kind that only newer coordinators write."""
    from barnabas.wire.kafka.coordinator_records import OffsetCommitKey, OffsetCommitValue, encode_key, encode_value

    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=1))
    value = encode_value(OffsetCommitValue(offset=7, leader_epoch=2, metadata="", commit_timestamp=NOW))
    records = [Record(0, NOW, key, value), Record(1, NOW, key, None), Record(2, NOW, b"\0\x63", b"")]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build_batch(records))
    assert dump_log.main(["--files", str(path), "--offsets-decoder", "--skip-record-metadata"]) == 0
    commit, deletion, unknown = capsys.readouterr().out.splitlines()[3:]
    key_text = '| key: {"type":"1","data":{"group":"g","topic":"t","partition":1}}'
    assert commit == (
        f'{key_text} payload: {{"version":"3","data":{{"offset":7,"leaderEpoch":2,"metadata":"",'
        f'"commitTimestamp":{NOW}}}}}'
    )
    assert deletion == f"{key_text} payload: <DELETE>"
    assert unknown == "| key: Unknown record type 99 at offset 2, skipping."

"""The log at the start: no transaction is missing in silence, at its beginning, between its
files, or before a snapshot."""

import logging
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.log_tail import ENTRY_HEAD, encode_entries
from barnabas.coordination.storage.transaction_log import log_name
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL
from barnabas.wire.jute.transactions import CreateTxn, TxnHeader, decode_transaction, encode_transaction
from support.coordination_directory import Entry, append, history, make_directory, opened, replayed

FIRST, SECOND = 1 << 32, 2 << 32


def load(folder: Path, *, sync: bool = True) -> Database:
    storage = opened(folder, sync=sync)
    try:
        return storage.load()[0]
    finally:
        storage.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(folder: Path, words: str) -> str:
    """The error of the start, which leaves all files as they are."""
    before = contents(folder / "version-2")
    with pytest.raises(CorruptDataError, match=words) as error:
        load(folder)
    assert contents(folder / "version-2") == before
    return str(error.value)


def state(database: Database) -> tuple[int, int, dict[str, str]]:
    return database.last_zxid, database.tree.digest, {path: repr(node) for path, node in database.tree.nodes.items()}


def size_of(entry: Entry) -> int:
    return len(encode_entries([entry[1]]))


def without_digest(entry: Entry) -> Entry:
    """As a server before ZooKeeper 3.6 logs it."""
    header, txn, _ = decode_transaction(entry[1])
    assert txn is not None
    return entry[0], bytes(encode_transaction(header, txn, None))


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """Two epochs of an ensemble."""
    return history((1, 60), (2, 60))


@pytest.fixture(scope="module")
def alone() -> list[Entry]:
    """A server alone."""
    return history((0, 60))


def boundary(entries: Sequence[Entry]) -> int:
    """The number of the second epoch's first transaction."""
    return next(number for number, (zxid, _) in enumerate(entries) if zxid > SECOND)


@pytest.mark.parametrize("snapshots", [[0], [0, 30], [0, 30, 90]])
def test_a_healthy_directory_is_loaded_whole(tmp_path: Path, entries: list[Entry], snapshots: list[int]) -> None:
    """Whichever snapshots there are, with files that end anywhere."""
    make_directory(tmp_path, entries, files=[0, 20, 40, 70, 100], snapshots=snapshots)
    assert state(load(tmp_path)) == state(replayed(entries))


@pytest.mark.parametrize("left", [0, 1, 5, 19])
def test_an_older_file_that_lost_its_end_before_another_epoch_is_refused_by_the_digest(
    tmp_path: Path, entries: list[Entry], left: int
) -> None:
    """Zxids show no gap there, for an epoch may end anywhere; cut between two entries, it
    does not even look torn."""
    first = boundary(entries)
    folder = make_directory(tmp_path, entries, files=[0, first - 20, first], snapshots=[0])
    older = folder / log_name(entries[first - 20][0])
    whole = older.read_bytes()
    kept = sum(map(size_of, entries[first - 20 : first - 20 + left]))
    for size in (16 + kept, 16 + kept + 30):
        older.write_bytes(whole[:size])
        assert f"{log_name(entries[first][0])}, byte 16)" in refused(tmp_path, "does not have the digest")
    older.unlink()
    refused(tmp_path, "does not have the digest")


def test_an_older_file_that_ends_torn_is_refused_where_the_next_one_does_not_follow(
    tmp_path: Path, entries: list[Entry]
) -> None:
    """Within an epoch the zxids show it, and the torn end is left for who looks at it."""
    folder = make_directory(tmp_path, entries, files=[0, 20, 40], snapshots=[0])
    torn = folder / log_name(entries[20][0])
    whole = torn.read_bytes()
    torn.write_bytes(whole[: len(whole) - size_of(entries[39]) - 10])
    error = refused(tmp_path, "are missing before")
    assert log_name(entries[40][0]) in error
    assert f"0x{entries[38][0]:x} to 0x{entries[39][0]:x}" in error


@pytest.mark.parametrize("reserved", [0, 5000])
def test_an_older_file_that_ends_torn_is_repaired_where_the_next_one_follows_its_last_whole_transaction(
    tmp_path: Path, entries: list[Entry], caplog: pytest.LogCaptureFixture, reserved: int
) -> None:
    """So do Apache's servers leave a crash: they begin a new file, and the torn one
    stays as it is."""
    first = boundary(entries)
    for start, stop in ((20, 30), (20, first)):
        folder = make_directory(tmp_path / f"{stop}", entries, files=[0, start, stop], snapshots=[0])
        torn = folder / log_name(entries[start][0])
        whole = torn.read_bytes()
        torn.write_bytes(whole + encode_entries([entries[stop][1]])[:-10] + bytes(reserved))
        caplog.clear()
        assert state(load(tmp_path / f"{stop}")) == state(replayed(entries))
        assert "the entry there is torn" in caplog.text
        assert torn.read_bytes() == whole


def test_an_epoch_without_its_first_transaction_is_refused(tmp_path: Path, entries: list[Entry]) -> None:
    """It begins with 1, in every server's log; also where older servers have written no digests."""
    first = boundary(entries)
    old = [without_digest(entry) for entry in entries]
    make_directory(tmp_path, old[:first] + old[first + 1 :], files=[0, first], snapshots=[0])
    assert "0x200000001 to 0x200000001" in refused(tmp_path, "are missing before")


def test_a_file_with_another_ones_content_is_refused(tmp_path: Path, alone: list[Entry]) -> None:
    """Swapped, copied, or renamed: what it should hold would be passed over."""
    folder = make_directory(tmp_path, alone, files=[0, 20, 40], snapshots=[0, 40])
    last, middle = (folder / log_name(alone[number][0]) for number in (40, 20))
    one, other = last.read_bytes(), middle.read_bytes()
    last.write_bytes(other)
    middle.write_bytes(one)
    assert last.name in refused(tmp_path, "begins with the transaction")


def test_a_snapshot_with_another_ones_content_is_not_used(
    tmp_path: Path, alone: list[Entry], caplog: pytest.LogCaptureFixture
) -> None:
    """Its name would say that it holds more than it does; an older one and the log
    serve, or the start ends."""
    folder = make_directory(tmp_path, alone, files=[0, 20, 40], snapshots=[0, 20, 40])
    newer, older = (folder / f"snapshot.{alone[number - 1][0]:x}" for number in (40, 20))
    newer.write_bytes(older.read_bytes())
    assert state(load(tmp_path)) == state(replayed(alone))
    assert "its content is another file's" in caplog.text
    for number in (0, 20):
        (folder / log_name(alone[number][0])).unlink()
    refused(tmp_path, "are missing before")


def cut_seals(snapshot: bytes, *, zxid: int | None, digest_zxid: int | None, digest: int | None = None) -> bytes:
    """A snapshot as another version writes it: without its last zxid, with another
    digest, or with none."""
    seal = 8 + 5
    end = len(snapshot) - 2 * seal - 8 - 20
    out = bytearray(snapshot[:end])
    if digest_zxid is not None:
        old = snapshot[end : end + 20]
        out += struct.pack(">q", digest_zxid) + old[8:12] + (old[12:] if digest is None else struct.pack(">q", digest))
        out += struct.pack(">q", zlib.adler32(out)) + b"\0\0\0\x01/"
    if zxid is not None:
        out += struct.pack(">q", zxid)
        out += struct.pack(">q", zlib.adler32(out)) + b"\0\0\0\x01/"
    return bytes(out)


def fuzzy(folder: Path, entries: list[Entry], named: int, until: int, **changes: int | None) -> None:
    """A snapshot that is named for one moment and holds the state of a later one, as
    Apache's servers write them."""
    storage = opened(folder)
    storage.save_snapshot(replayed(entries[:until]))
    storage.close()
    path = folder / "version-2" / f"snapshot.{entries[until - 1][0]:x}"
    last = entries[until - 1][0]
    whole = {"zxid": last, "digest_zxid": last, **changes}
    path.with_name(f"snapshot.{entries[named - 1][0]:x}").write_bytes(cut_seals(path.read_bytes(), **whole))
    path.unlink()


@pytest.mark.parametrize("zxid", [True, False])
def test_a_fuzzy_snapshot_is_exact_from_the_zxid_of_its_digest_on(
    tmp_path: Path, alone: list[Entry], zxid: bool
) -> None:
    """Before it, the tree is ahead of the transactions; a damage behind it is found."""
    folder = make_directory(tmp_path, alone, files=[0, 20, 50], snapshots=[0])
    fuzzy(tmp_path, alone, 20, 40, **({} if zxid else {"zxid": None}))
    assert state(load(tmp_path)) == state(replayed(alone))
    (folder / log_name(alone[50][0])).unlink()
    assert state(load(tmp_path)) == state(replayed(alone[:50]))


def test_a_fuzzy_snapshot_that_does_not_give_the_tree_of_its_digest_is_refused(
    tmp_path: Path, alone: list[Entry]
) -> None:
    """Also where the transactions name no digests."""
    make_directory(tmp_path, [without_digest(entry) for entry in alone], files=[0, 20, 50], snapshots=[0])
    fuzzy(tmp_path, alone, 20, 40, digest=12345)
    error = refused(tmp_path, "gives another tree than the one whose digest it names")
    assert log_name(alone[20][0]) in error
    assert "byte" in error


def test_digests_count_from_the_first_that_is_right_behind_a_snapshot_without_one(
    tmp_path: Path, alone: list[Entry]
) -> None:
    """It does not say how far it is ahead; once the tree is right it stays right."""
    folder = make_directory(tmp_path, alone, files=[0, 20], snapshots=[0])
    fuzzy(tmp_path, alone, 20, 30, digest_zxid=0)
    assert state(load(tmp_path)) == state(replayed(alone))
    log = folder / log_name(alone[20][0])
    wrong = struct.pack(">q", 12345)
    changed = [payload for _, payload in alone[20:]]
    changed[-5] = changed[-5][:-8] + wrong
    log.write_bytes(log.read_bytes()[:16] + encode_entries(changed))
    at = 16 + sum(ENTRY_HEAD.size + len(payload) + 1 for payload in changed[:-5])
    assert f"({log}, byte {at})" in refused(tmp_path, "does not have the digest")


def test_a_snapshot_of_a_state_that_may_be_ahead_names_no_digest(tmp_path: Path, alone: list[Entry]) -> None:
    """A leader's state that a learner got, and saves before anything has shown that it is exact."""
    database = replayed(alone[:30])
    database.exact_from_zxid = 1 << 63
    database.last_zxid = alone[19][0]
    storage = opened(tmp_path)
    storage.replace(database)
    storage.close()
    append(tmp_path, alone[20:])
    assert state(load(tmp_path)) == state(replayed(alone))


def test_a_log_that_ends_before_the_newest_snapshot_of_a_server_alone_is_refused(
    tmp_path: Path, alone: list[Entry]
) -> None:
    """A transaction is logged before it is in a snapshot: the log was cut, with what
    came after the snapshot."""
    folder = make_directory(tmp_path, alone, files=[0, 20], snapshots=[0, 40])
    log = folder / log_name(alone[20][0])
    whole = log.read_bytes()
    for size in (16 + sum(map(size_of, alone[20:35])), 16 + sum(map(size_of, alone[20:35])) + 7):
        log.write_bytes(whole[:size])
        assert f"0x{alone[34][0]:x}" in refused(tmp_path, "before the snapshot")
    assert load(tmp_path, sync=False).last_zxid == alone[39][0], "without syncs a loss of power explains it"
    log.write_bytes(whole[: 16 + sum(map(size_of, alone[20:40]))])
    assert state(load(tmp_path)) == state(replayed(alone[:40]))


def test_a_snapshot_that_a_leader_has_sent_is_ahead_of_the_log(tmp_path: Path, entries: list[Entry]) -> None:
    """Apache's learners keep their older log files."""
    make_directory(tmp_path, entries[:40], files=[0, 20], snapshots=[0])
    storage = opened(tmp_path)
    storage.save_snapshot(replayed(entries[:100]))
    storage.close()
    assert state(load(tmp_path)) == state(replayed(entries[:100]))
    append(tmp_path, entries[100:])
    assert state(load(tmp_path)) == state(replayed(entries))


def test_a_damaged_snapshot_still_says_how_far_the_state_went(
    tmp_path: Path, alone: list[Entry], caplog: pytest.LogCaptureFixture
) -> None:
    """With the whole log its state is there; with less, the start ends."""
    folder = make_directory(tmp_path, alone, files=[0, 20, 40], snapshots=[0, 40])
    snapshot = folder / f"snapshot.{alone[39][0]:x}"
    data = bytearray(snapshot.read_bytes())
    data[100] ^= 1
    snapshot.write_bytes(data)
    assert state(load(tmp_path)) == state(replayed(alone))
    assert str(snapshot) in caplog.text
    for number in (40, 20):
        (folder / log_name(alone[number][0])).unlink()
    error = refused(tmp_path, "transactions up to")
    assert str(snapshot) in error


def test_a_file_without_its_header_is_refused_where_it_does_not_follow(
    tmp_path: Path, alone: list[Entry], caplog: pytest.LogCaptureFixture
) -> None:
    """A crash leaves it behind the last transaction alone."""
    folder = make_directory(tmp_path, alone[:40], files=[0, 20], snapshots=[0])
    blank = folder / log_name(alone[40][0])
    for data in (b"", b"ZKLG", bytes(5000)):
        blank.write_bytes(data)
        assert state(load(tmp_path)) == state(replayed(alone[:40]))
        assert not blank.exists()
    blank = folder / log_name(alone[50][0])
    blank.write_bytes(b"")
    refused(tmp_path, "are missing before")
    blank.unlink()
    (folder / log_name(alone[0][0])).write_bytes(b"")
    refused(tmp_path, "are missing before")


def test_a_log_without_a_snapshot_is_taken_from_its_first_transaction_on(
    tmp_path: Path, entries: list[Entry], alone: list[Entry]
) -> None:
    """ZooKeeper before 3.4 has such directories; a log that begins in a later epoch shows by its
    digests that it is not whole."""
    for name, whole in (("alone", alone), ("ensemble", entries)):
        make_directory(tmp_path / name, whole, files=[0, 20], snapshots=[])
        assert state(load(tmp_path / name)) == state(replayed(whole))
    first = boundary(entries)
    make_directory(tmp_path / "later", entries[first:], files=[0], snapshots=[])
    refused(tmp_path / "later", "does not have the digest")
    old = [without_digest(entry) for entry in entries[first:]]
    make_directory(tmp_path / "old", old, files=[0], snapshots=[])
    refused(tmp_path / "old", "there is no snapshot")


@pytest.mark.parametrize("name", ["log.1", "snapshot.0", "snapshot.5"])
def test_a_directory_in_the_place_of_a_file_is_refused_by_its_path(
    tmp_path: Path, alone: list[Entry], name: str
) -> None:
    """At the start, though a newer snapshot would do without it: later it could not be removed."""
    folder = make_directory(tmp_path, alone, files=[0, 20], snapshots=[0, 40])
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    with pytest.raises(CorruptDataError, match=f"{name} is a directory"):
        load(tmp_path)


def test_a_foreign_file_is_refused(tmp_path: Path, alone: list[Entry]) -> None:
    """Another server's transactions, of the zxids that are missing."""
    folder = make_directory(tmp_path, alone, files=[0, 20, 40], snapshots=[0])
    header = TxnHeader(7, 1, alone[20][0], 5, OpCode.CREATE)
    foreign = bytes(encode_transaction(header, CreateTxn("/foreign", b"", list(OPEN_ACL), False, 1), None))
    log = folder / log_name(alone[20][0])
    log.write_bytes(log.read_bytes()[:16] + encode_entries([foreign, *(payload for _, payload in alone[21:40])]))
    refused(tmp_path, "does not have the digest")


def test_nothing_is_reported_about_a_healthy_directory(
    tmp_path: Path, entries: list[Entry], caplog: pytest.LogCaptureFixture
) -> None:
    """No warning, however often it is loaded."""
    caplog.set_level(logging.WARNING)
    make_directory(tmp_path, entries, files=[0, 20, 40, 70, 100], snapshots=[0, 30, 90])
    for _ in range(2):
        load(tmp_path)
    assert caplog.text == ""

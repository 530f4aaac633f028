"""The transaction log and snapshots: what a crash or damage leaves, and what is refused."""

import contextlib
import errno
import random
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.tree import Tree
from barnabas.coordination.core.znode import DataNode
from barnabas.coordination.storage.log_tail import encode_entries
from barnabas.coordination.storage.restoration import NoRoomError, Restoration
from barnabas.coordination.storage.snapshot import encode_snapshot, read_snapshot, read_snapshot_with_zxid
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.storage.transaction_log import TransactionLog, read_transaction_log
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL
from barnabas.wire.jute.transactions import CreateSessionTxn, CreateTxn, SetDataTxn, TxnHeader, encode_transaction
from barnabas.wire.kafka.records.compression import CompressionType, compress

FILES = OsFiles()


def transaction(zxid: int) -> bytes:
    """A transaction that every database can apply."""
    if zxid == 1:
        return bytes(encode_transaction(TxnHeader(7, 0, 1, 5, OpCode.CREATE_SESSION), CreateSessionTxn(4000), None))
    if zxid == 2:
        txn = CreateTxn("/a", b"first", list(OPEN_ACL), False, 1)
        return bytes(encode_transaction(TxnHeader(7, 1, 2, 5, OpCode.CREATE), txn, None))
    txn = SetDataTxn("/a", b"data %d" % zxid, zxid - 2)
    return bytes(encode_transaction(TxnHeader(7, zxid, zxid, 5, OpCode.SET_DATA), txn, None))


def entry(zxid: int) -> bytes:
    """The bytes of `transaction` in a log file."""
    return encode_entries([transaction(zxid)])


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with_dirs = open_storage(tmp_path)
    yield with_dirs
    with_dirs.close()


def open_storage(path: Path) -> Storage:
    storage = Storage(FILES, str(path), str(path), preallocate_bytes=64 * 1024)
    storage.open()
    return storage


def log_of(path: Path, first: int = 1) -> Path:
    return path / "version-2" / f"log.{first:x}"


def write(storage: Storage, first: int, last: int) -> None:
    storage.log.append(first, [transaction(zxid) for zxid in range(first, last + 1)])


def data_of(database: Database) -> bytes | None:
    node = database.tree.get("/a")
    return None if node is None else node.data


def test_what_was_appended_is_there_after_a_crash(tmp_path: Path, storage: Storage) -> None:
    """The file is not closed, and its reserved room is zeros; all transactions are replayed."""
    write(storage, 1, 5)
    write(storage, 6, 9)
    assert log_of(tmp_path).stat().st_size == 64 * 1024
    database, replayed = storage.load()
    assert (database.last_zxid, replayed, data_of(database)) == (9, 9, b"data 9")
    assert database.session_timeouts_ms == {7: 4000}


def test_a_tail_cut_at_any_byte_leaves_the_longest_valid_prefix(tmp_path: Path, storage: Storage) -> None:
    """Every length of the file gives the transactions that are complete in it."""
    write(storage, 1, 4)
    storage.log.close()
    whole = log_of(tmp_path).read_bytes()
    ends = [16]
    for zxid in range(1, 5):
        ends.append(ends[-1] + len(entry(zxid)))
    assert ends[-1] == len(whole)
    for size in range(16, len(whole) + 1):
        for padding in (b"", bytes(100)):
            log_of(tmp_path).write_bytes(whole[:size] + padding)
            expected = sum(end <= size for end in ends) - 1
            assert storage.load()[0].last_zxid == expected
            assert log_of(tmp_path).stat().st_size == ends[expected], "the torn end is cut off"


def test_a_log_shorter_than_its_header_is_removed(tmp_path: Path, storage: Storage) -> None:
    """The server crashed while it created the file; nothing in it was acknowledged."""
    write(storage, 1, 3)
    storage.log.close()
    log_of(tmp_path, 4).write_bytes(b"ZKLG\0")
    assert storage.load()[0].last_zxid == 3
    write(storage, 4, 5)
    assert storage.load()[0].last_zxid == 5


def test_every_flipped_byte_before_the_last_transaction_is_refused(tmp_path: Path, storage: Storage) -> None:
    """Valid transactions stand behind the damage: the server must not start without them."""
    write(storage, 1, 4)
    storage.log.close()
    whole = bytearray(log_of(tmp_path).read_bytes())
    last_start = len(whole) - len(entry(4))
    for position in range(16, last_start):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        log_of(tmp_path).write_bytes(damaged)
        with pytest.raises(CorruptDataError, match="is damaged at byte"):
            storage.load()


def test_a_zeroed_block_in_the_middle_is_refused(tmp_path: Path, storage: Storage) -> None:
    """Zeros are reserved room only at the end of the file, also where a crash lost a
    sector of a batch."""
    write(storage, 1, 2)
    storage.log.append(3, [transaction(zxid) for zxid in range(3, 60)])
    storage.log.close()
    whole = bytearray(log_of(tmp_path).read_bytes())
    whole[1024:1536] = bytes(512)
    log_of(tmp_path).write_bytes(whole)
    with pytest.raises(CorruptDataError, match="is damaged"):
        storage.load()


@pytest.mark.parametrize("reserved", [0, 4096], ids=["exact", "reserved room"])
def test_every_flipped_bit_of_the_last_transaction_is_refused(tmp_path: Path, storage: Storage, reserved: int) -> None:
    """The entry is whole, so it may have been acknowledged.

    The error names file, offset and remedy."""
    write(storage, 1, 4)
    storage.log.close()
    whole = log_of(tmp_path).read_bytes()
    last_start = len(whole) - len(entry(4))
    for position in range(last_start, len(whole)):
        for bit in range(8):
            damaged = bytearray(whole) + bytes(reserved)
            damaged[position] ^= 1 << bit
            log_of(tmp_path).write_bytes(damaged)
            with pytest.raises(CorruptDataError, match=rf"log\.1 is damaged at byte {last_start}: .*truncate -s"):
                storage.load()
            assert log_of(tmp_path).read_bytes() == damaged, "a file that is refused stays as it is"


def test_garbage_behind_the_last_transaction_is_refused(tmp_path: Path, storage: Storage) -> None:
    """A crash leaves zeros, or nothing."""
    write(storage, 1, 4)
    storage.log.close()
    whole = log_of(tmp_path).read_bytes()
    for garbage in (b"w" * 50, b"\0" * 11 + b"\x05" + b"x" * 30, b"\0" * 7 + b"\1" + b"\0\0\0\x40" + b"x" * 65):
        log_of(tmp_path).write_bytes(whole + garbage)
        with pytest.raises(CorruptDataError, match="is damaged at byte"):
            storage.load()


def test_a_torn_entry_is_cut_off_with_a_warning(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    """With file and offset; zeros alone are no news."""
    write(storage, 1, 4)
    storage.log.close()
    whole = log_of(tmp_path).read_bytes()
    storage.load()
    log_of(tmp_path).write_bytes(whole + bytes(1000))
    storage.load()
    assert not caplog.records
    log_of(tmp_path).write_bytes(whole[:-5] + bytes(1000))
    storage.load()
    (record,) = caplog.records
    assert f"log.1 at byte {len(whole) - len(entry(4))}: the entry there is torn" in record.getMessage()


@given(sizes=st.integers(0, 3000), lost=st.sets(st.integers(0, 8)), last_sectors=st.integers(0, 8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sectors_that_a_crash_leaves_of_an_unsynced_entry_let_the_server_start(
    tmp_path: Path, sizes: int, lost: set[int], last_sectors: int
) -> None:
    """Some sectors of the entry are zeros, and the file may end within it: torn, or
    whole if nothing is missing."""
    path = tmp_path / str(len(list(tmp_path.iterdir())))
    storage = open_storage(path)
    write(storage, 1, 3)
    storage.log.close()
    synced = log_of(path).read_bytes()
    txn = SetDataTxn("/a", random.Random(sizes).randbytes(sizes), 2)
    new = encode_entries([encode_transaction(TxnHeader(7, 4, 4, 5, OpCode.SET_DATA), txn, None)])
    torn = bytearray(synced + new)
    first_sector = len(synced) // 512
    for number in lost:
        start = max(len(synced), (first_sector + number) * 512)
        end = min(len(torn), (first_sector + number + 1) * 512)
        if start < end:
            torn[start:end] = bytes(end - start)
    end = (first_sector + last_sectors) * 512 + 100
    log_of(path).write_bytes(torn[: max(len(synced), end)])
    last_zxid = storage.load()[0].last_zxid
    assert last_zxid == (4 if log_of(path).read_bytes() == synced + new else 3)
    storage.close()


def set_data(zxid: int, data: bytes) -> bytes:
    """An entry whose znode data are ``data``."""
    txn = SetDataTxn("/a", data, 1)
    return encode_entries([encode_transaction(TxnHeader(7, zxid, zxid, 5, OpCode.SET_DATA), txn, None)])


def log_that_ends_at(path: Path, end: int) -> bytes:
    """A log of two transactions, with ``end`` bytes."""
    log = TransactionLog(FILES, str(path), preallocate_bytes=0)
    log.append(1, [transaction(1)])
    log.close()
    whole = (path / "log.1").read_bytes()
    room = end - len(whole) - len(set_data(2, b""))
    return whole + set_data(2, random.Random(end).randbytes(room))


@pytest.mark.parametrize("before", range(1, 13))
def test_an_unsynced_entry_whose_head_straddles_sectors_is_torn_when_one_of_them_is_missing(
    tmp_path: Path, before: int
) -> None:
    """Part of the checksum, or of the size, is zeros; sizes of one, two and three
    bytes, any sectors missing."""
    synced = log_that_ends_at(tmp_path, 1024 - before)
    path = tmp_path / "log.1"
    for size in (100, 300, 700, 1500, 70_000):
        whole = synced + set_data(3, random.Random(size).randbytes(size))
        for lost in range(1, 8):
            torn = bytearray(whole) + bytes(4096)
            for number in range(3):
                if lost >> number & 1:
                    start, end = max(len(synced), 512 * (number + 1)), min(len(whole), 512 * (number + 2))
                    torn[start:end] = bytes(max(0, end - start))
            path.write_bytes(torn)
            is_whole = torn[: len(whole)] == whole
            assert len(list(read_transaction_log(FILES, str(path), repair=True))) == (3 if is_whole else 2)
            assert path.read_bytes() == (whole if is_whole else synced)


@pytest.mark.parametrize("before", range(1, 13))
def test_a_flipped_bit_in_an_entry_whose_head_straddles_sectors_is_refused(tmp_path: Path, before: int) -> None:
    """The bytes before the boundary are there, so no sector is missing."""
    synced = log_that_ends_at(tmp_path, 1024 - before)
    whole = synced + set_data(3, b"acknowledged")
    path = tmp_path / "log.1"
    for bit in range(8 * len(synced), 8 * len(whole)):
        damaged = bytearray(whole) + bytes(100)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match=f"damaged at byte {len(synced)}"):
            list(read_transaction_log(FILES, str(path), repair=True))


def test_a_torn_entry_whose_data_hold_the_bytes_of_entries_is_cut_off(tmp_path: Path) -> None:
    """What a client stores in a znode is not a transaction behind the torn one, unless the
    head of that one is missing."""
    synced = log_that_ends_at(tmp_path, 700)
    path = tmp_path / "log.1"
    some = random.Random(1).randbytes
    whole = synced + set_data(3, some(300) + bytes(3) + entry(3) + entry(4) + some(1500))
    for first in range(1, len(whole) // 512 + 1):
        start, end = max(len(synced), first * 512), min(len(whole), (first + 1) * 512)
        path.write_bytes(whole[:start] + bytes(end - start) + whole[end:] + bytes(1000))
        if first == len(synced) // 512:  # without its head, the entry does not show where it ends
            with pytest.raises(CorruptDataError, match="valid transactions follow"):
                list(read_transaction_log(FILES, str(path), repair=True))
            continue
        assert len(list(read_transaction_log(FILES, str(path), repair=True))) == 2
        assert path.read_bytes() == synced
    path.write_bytes(whole[:-200])
    assert len(list(read_transaction_log(FILES, str(path), repair=True))) == 2


@pytest.mark.parametrize("claimed", [1 << 30, 5000, 150], ids=["beyond the file", "beyond the data", "within the data"])
def test_a_wrong_size_does_not_hide_the_transactions_behind_it(tmp_path: Path, claimed: int) -> None:
    """Checksum and size of an acknowledged entry are wrong; the size leads over
    entries that are valid."""
    synced = log_that_ends_at(tmp_path, 700)
    damaged = bytearray(synced + b"".join(entry(zxid) for zxid in range(3, 8)) + bytes(8000))
    struct.pack_into(">qi", damaged, len(synced), 77, claimed)
    (tmp_path / "log.1").write_bytes(damaged)
    with pytest.raises(CorruptDataError, match="valid transactions follow"):
        list(read_transaction_log(FILES, str(tmp_path / "log.1"), repair=True))


def test_a_missing_log_file_is_refused(tmp_path: Path, storage: Storage) -> None:
    """A gap in the zxids means lost transactions."""
    for first, last in ((1, 3), (4, 6), (7, 9)):
        write(storage, first, last)
        storage.log.roll()
    log_of(tmp_path, 4).unlink()
    with pytest.raises(CorruptDataError, match="0x4 to 0x6 are missing .*Restore the files from a backup"):
        storage.load()


def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path, storage: Storage) -> None:
    """It has the name of a log, but not the header."""
    log_of(tmp_path).write_bytes(b"something else entirely")
    with pytest.raises(CorruptDataError, match="not a transaction log"):
        storage.load()


def test_an_entry_larger_than_a_chunk_is_read(tmp_path: Path, storage: Storage) -> None:
    """A node's data may be larger than one read."""
    write(storage, 1, 2)
    big = SetDataTxn("/a", b"x" * 3_000_000, 1)
    storage.log.append(3, [encode_transaction(TxnHeader(7, 3, 3, 5, OpCode.SET_DATA), big, None), transaction(4)])
    database, replayed = storage.load()
    assert (replayed, data_of(database)) == (4, b"data 4")
    assert len(list(read_transaction_log(FILES, str(log_of(tmp_path)), repair=False))) == 4


# Snapshots

DIGEST_BYTES, ZXID_BYTES = 8 + 4 + 8 + 13, 8 + 13
"""The sections that a snapshot has since 3.6 and since 3.9, with their seals."""


def test_a_snapshot_says_its_zxid() -> None:
    """Since 3.9: its bytes can be restored without the file's name. An older one cannot."""
    database = filled()
    whole = b"".join(encode_snapshot(database))
    found = read_snapshot_with_zxid(whole, "a snapshot")
    assert found.last_zxid == database.last_zxid
    assert found.tree.digest == database.tree.digest
    for older in (whole[:-ZXID_BYTES], whole[: -ZXID_BYTES - DIGEST_BYTES]):
        assert read_snapshot(older, "a snapshot", 199).last_zxid == 199
        with pytest.raises(CorruptDataError, match="does not hold its zxid"):
            read_snapshot_with_zxid(older, "a snapshot")


def test_a_snapshot_of_apaches_without_a_digest_is_read() -> None:
    """A server that has applied no transaction since its start writes zxid 0 and digest 0:
    there is nothing to compare."""
    database = filled()
    with_digest = b"".join(encode_snapshot(database))
    nodes = with_digest[: -(DIGEST_BYTES + ZXID_BYTES)]
    seal = b"\0\0\0\x01/"
    empty = nodes + struct.pack(">qiq", 0, 2, 0)
    for zxid in (0, database.last_zxid):
        found = read_snapshot(empty + struct.pack(">q", zlib.adler32(empty)) + seal, "snapshot", zxid)
        assert found.tree.nodes.keys() == database.tree.nodes.keys()


def test_a_snapshot_whose_nodes_do_not_have_its_digest_is_refused() -> None:
    """The digest is the one of the snapshot's own zxid, so it is exact."""
    database = filled()
    whole = b"".join(encode_snapshot(database))
    wrong = bytearray(whole[: -13 - ZXID_BYTES])
    wrong[-1] ^= 1
    with pytest.raises(CorruptDataError, match="do not have the digest"):
        read_snapshot(
            bytes(wrong) + struct.pack(">q", zlib.adler32(wrong)) + b"\0\0\0\x01/", "snapshot", database.last_zxid
        )


def filled() -> Database:
    database = Database()
    for zxid in range(1, 200):
        txn = CreateTxn(f"/n{zxid}", b"x" * zxid, list(OPEN_ACL), zxid % 3 == 0, zxid)
        database.apply(TxnHeader(9, zxid, zxid, 1000 + zxid, OpCode.CREATE), txn, None)
    database.session_timeouts_ms[9] = 6000
    return database


def test_a_snapshot_holds_the_state_of_its_first_slice() -> None:
    """Later changes are not in it."""
    database = filled()
    slices = encode_snapshot(database)
    data = next(slices)
    digest, nodes = database.tree.digest, dict(database.tree.nodes)
    for zxid in range(200, 900):
        txn = CreateTxn(f"/later{zxid}", b"", list(OPEN_ACL), False, zxid)
        database.apply(TxnHeader(9, zxid, zxid, 5, OpCode.CREATE), txn, None)
    data += b"".join(slices)
    loaded = read_snapshot(data, "test", 199)
    assert loaded.tree.digest == digest
    assert {path: repr(node) for path, node in loaded.tree.nodes.items()} == {
        path: repr(node) for path, node in nodes.items()
    }
    assert loaded.session_timeouts_ms == {9: 6000}
    assert loaded.tree.ephemerals == {9: {f"/n{zxid}": None for zxid in range(1, 200) if zxid % 3 == 0}}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["create", "set", "delete"]), st.integers(0, 5)),
            st.tuples(st.sampled_from(["begin", "read on", "abandon"]), st.integers(0, 2)),
        ),
        max_size=60,
    )
)
def test_frozen_trees_stay_the_same_while_nodes_are_created_changed_and_deleted(steps: list[tuple[str, int]]) -> None:
    """Several images of different moments, against copies made at the same moments."""
    tree = Tree()
    images: dict[
        int, tuple[Iterator[tuple[str, DataNode]], list[tuple[str, DataNode]], list[tuple[str, DataNode]]]
    ] = {}

    def finish(image: int) -> None:
        rest, wanted, got = images.pop(image)
        assert [*got, *rest] == wanted

    for zxid, (step, number) in enumerate(steps, 1):
        path = f"/n{number}"
        if step == "create" and tree.get(path) is None:
            tree.put(path, DataNode.new(path, b"", OPEN_ACL, 0, zxid, 5))
        elif step == "set" and (node := tree.get(path)) is not None:
            tree.put(path, node.with_data(path, b"x", node.version + 1, zxid, 5))
        elif step == "delete" and tree.get(path) is not None:
            tree.remove(path)
        elif step == "begin":
            if number in images:
                finish(number)
            images[number] = (tree.frozen(), list(tree.nodes.items()), [])
            images[number][2].append(next(images[number][0]))
        elif step == "read on" and number in images:
            images[number][2].extend(islice(images[number][0], 2))
        elif step == "abandon":
            images.pop(number, None)
    for number in list(images):
        finish(number)
    assert not tree._images


def test_a_frozen_tree_keeps_nothing_of_nodes_that_come_and_go() -> None:
    """Locks that are created and deleted while a snapshot is written cost no memory."""
    tree = Tree()
    nodes = tree.frozen()
    next(nodes)
    for zxid in range(1, 100):
        tree.put("/lock", DataNode.new("/lock", b"", OPEN_ACL, 0, zxid, 5))
        tree.remove("/lock")
    (image,) = tree._images
    assert not image.kept.keys() - {"/"}
    assert not image.fresh


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_snapshot_is_refused(data: st.DataObject) -> None:
    """A flipped bit or a cut is detected everywhere."""
    whole = b"".join(encode_snapshot(filled()))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(whole) - 1))
        bad = bytearray(whole)
        bad[position] ^= 1 << data.draw(st.integers(0, 7))
    else:
        bad = bytearray(whole[: data.draw(st.integers(0, len(whole) - 1))])
        if len(bad) in (len(whole) - ZXID_BYTES, len(whole) - ZXID_BYTES - DIGEST_BYTES):
            # Without the zxid, or the digest too, it is a snapshot as older versions write it.
            return
    with pytest.raises(CorruptDataError):
        read_snapshot(bytes(bad), "test", 199)


def test_an_older_snapshot_serves_when_the_newest_is_damaged_and_the_log_is_whole(
    tmp_path: Path, storage: Storage
) -> None:
    """All transactions are there, so nothing is lost."""
    storage.save_snapshot(Database())
    write(storage, 1, 5)
    storage.save_snapshot(storage.load()[0])
    write(storage, 6, 8)
    newest = tmp_path / "version-2" / "snapshot.5"
    newest.write_bytes(newest.read_bytes()[:-20])
    assert data_of(storage.load()[0]) == b"data 8"
    (tmp_path / "version-2" / "snapshot.0").unlink()
    assert data_of(storage.load()[0]) == b"data 8", "the log begins with the first transaction"


def test_a_damaged_snapshot_without_the_log_before_it_is_refused(tmp_path: Path, storage: Storage) -> None:
    """The state before the log is unknown."""
    write(storage, 1, 5)
    storage.save_snapshot(storage.load()[0])
    storage.log.roll()
    write(storage, 6, 8)
    log_of(tmp_path).unlink()
    newest = tmp_path / "version-2" / "snapshot.5"
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.raises(CorruptDataError, match="no snapshot .*Restore the files from a backup"):
        storage.load()


def test_purging_keeps_what_the_kept_snapshots_need(tmp_path: Path, storage: Storage) -> None:
    """Log files are removed when no remaining snapshot needs them."""
    for start in range(1, 50, 10):
        write(storage, start, start + 9)
        storage.save_snapshot(storage.load()[0])
        storage.log.roll()
    removed = {Path(path).name for path in storage.purge(3)}
    assert removed == {"snapshot.a", "snapshot.14", "log.1", "log.b", "log.15"}
    assert data_of(storage.load()[0]) == b"data 50"
    assert storage.purge(3) == []


def test_purging_counts_no_snapshot_that_is_cut_off(tmp_path: Path, storage: Storage) -> None:
    """What a crash of another server left does not take the place of one that can be read."""
    for start in range(1, 50, 10):
        write(storage, start, start + 9)
        storage.save_snapshot(storage.load()[0])
        storage.log.roll()
    for name in ("snapshot.28", "snapshot.32"):
        path = tmp_path / "version-2" / name
        path.write_bytes(path.read_bytes()[:-3])
    assert [Path(path).name for path in storage.purge(3)] == ["log.1"]
    assert data_of(storage.load()[0]) == b"data 50"


def test_a_log_file_above_its_limit_is_the_last_of_its_transactions(tmp_path: Path) -> None:
    """The next transaction begins a new one, and all are replayed."""
    storage = Storage(FILES, str(tmp_path), str(tmp_path), preallocate_bytes=4096, max_log_file_bytes=1000)
    storage.open()
    for zxid in range(1, 60):
        write(storage, zxid, zxid)
    storage.close()
    sizes = [path.stat().st_size for path in (tmp_path / "version-2").glob("log.*")]
    assert len(sizes) > 3
    assert max(sizes) < 1200  # the reserved room is given back
    again = open_storage(tmp_path)
    assert data_of(again.load()[0]) == b"data 59"
    again.close()


def test_a_log_file_has_room_ahead_of_what_is_written(tmp_path: Path) -> None:
    """At least four kilobytes, whatever the size of the steps."""
    storage = Storage(FILES, str(tmp_path), str(tmp_path), preallocate_bytes=8192)
    storage.open()
    written = 0
    for zxid in range(1, 300):
        write(storage, zxid, zxid)
        written = storage.log.used_bytes or 0
        size = log_of(tmp_path).stat().st_size
        assert size % 8192 == 0
        assert 4096 <= size - written <= 4096 + 8192
    assert written > 16_384
    storage.close()


def test_a_snapshot_that_is_abandoned_leaves_nothing(tmp_path: Path, storage: Storage) -> None:
    """A full disk gets its room back."""
    writer = storage.begin_snapshot(Database())
    part = writer.next_part()
    assert part is not None
    writer.write(part)
    writer.abandon()
    assert list((tmp_path / "version-2").glob("snapshot*")) == []


def test_a_state_that_a_leader_sent_leaves_no_older_file(tmp_path: Path, storage: Storage) -> None:
    """Between the older transactions and the state is a gap, which a restart from
    them would not see."""
    write(storage, 1, 20)
    storage.save_snapshot(storage.load()[0])
    sent = Database()
    sent.last_zxid = 0x200000000
    storage.replace(sent)
    names = sorted(path.name for path in (tmp_path / "version-2").iterdir())
    assert names == ["snapshot.200000000"]
    assert storage.load()[0].last_zxid == 0x200000000


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path, storage: Storage) -> None:
    """Two writers would destroy the log."""
    with pytest.raises(BlockingIOError):
        open_storage(tmp_path)


def test_an_unfinished_snapshot_is_removed(tmp_path: Path, storage: Storage) -> None:
    """A crash while it was written leaves a temporary file."""
    storage.save_snapshot(Database())
    half = tmp_path / "version-2" / "snapshot.9.barnabas-tmp"
    half.write_bytes(b"half")
    assert storage.load()[0].last_zxid == 0
    assert not half.exists()


@pytest.mark.parametrize(("suffix", "kind"), [("gz", CompressionType.GZIP), ("snappy", CompressionType.SNAPPY)])
def test_a_compressed_snapshot_is_read(tmp_path: Path, storage: Storage, suffix: str, kind: CompressionType) -> None:
    """Apache's servers write it with snapshot.compression.method; a damaged one is
    no reason to start empty."""
    database = filled()
    whole = b"".join(bytes(part) for part in encode_snapshot(database))
    path = tmp_path / "version-2" / f"snapshot.{database.last_zxid:x}.{suffix}"
    path.write_bytes(compress(kind, whole))
    assert storage.load()[0].tree.nodes.keys() == database.tree.nodes.keys()
    assert storage.any_snapshot()
    path.write_bytes(compress(kind, whole)[:-9])
    with pytest.raises(CorruptDataError, match=f"{path.name}.* cannot be decompressed"):
        storage.load()


# A state in the place of the server's own


def arriving(storage: Storage, database: Database) -> Restoration:
    """A server with five transactions in snapshots and logs, and another state on its way to it."""
    write(storage, 1, 3)
    storage.save_snapshot(storage.load()[0])
    storage.log.roll()
    write(storage, 4, 5)
    restoration = storage.new_restoration()
    for part in encode_snapshot(database):
        restoration.write(part)
    assert restoration.read().last_zxid == database.last_zxid
    return restoration


def test_a_restored_state_takes_the_place_of_the_servers_own(tmp_path: Path, storage: Storage) -> None:
    """A restart finds it, and what was written after it; the files before it are kept aside."""
    database = filled()
    restoration = arriving(storage, database)
    storage.restore(restoration, database.last_zxid)
    restoration.abandon()
    storage.log.append(200, [transaction(200)])
    storage.close()
    again, replayed = storage.load()
    assert (again.last_zxid, replayed) == (200, 1)
    assert again.tree.nodes.keys() >= database.tree.nodes.keys()
    assert {path.name for path in (tmp_path / "before-restore.1").iterdir()} == {"snapshot.3", "log.1", "log.4"}
    assert {path.name for path in (tmp_path / "version-2").iterdir()} == {"snapshot.c7", "log.c8"}


@pytest.mark.parametrize("step", range(6))
def test_a_crash_during_a_restore_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """At whichever rename; a start completes what is committed.

    No file of the old state is lost."""
    database = filled()
    restoration = arriving(storage, database)
    left = step
    rename = OsFiles.rename

    def fail_later(self: OsFiles, old: str, new: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, "the machine stops")
        rename(self, old, new)

    with monkeypatch.context() as patched, contextlib.suppress(OSError):
        patched.setattr(OsFiles, "rename", fail_later)
        storage.restore(restoration, database.last_zxid)
    assert (left < 0) == (step < 5)
    loaded, _ = storage.load()
    assert loaded.last_zxid == (database.last_zxid if step else 5)
    names = {path.name for path in tmp_path.glob("*/*")}
    assert names >= {"snapshot.3", "log.1", "log.4"}
    assert "restore.barnabas-tmp" not in names


def test_what_is_no_whole_snapshot_is_not_restored(tmp_path: Path, storage: Storage) -> None:
    """Nothing at all, a part, and a log."""
    write(storage, 1, 2)
    whole = b"".join(encode_snapshot(filled()))
    for data in (b"", whole[:-5], whole[:1000], b"ZKLG" + bytes(200)):
        restoration = storage.new_restoration()
        if data:
            restoration.write(data)
        with pytest.raises(CorruptDataError):
            restoration.read()
        restoration.abandon()
    assert {path.name for path in (tmp_path / "version-2").iterdir()} == {"log.1"}
    assert storage.load()[0].last_zxid == 2


@pytest.mark.parametrize("zxid", [-(1 << 63), -5, -1, (1 << 63) - (1 << 32), (1 << 63) - 2, (1 << 63) - 1])
def test_a_snapshot_whose_zxid_no_server_can_continue_from_is_not_restored(zxid: int) -> None:
    """A zxid has 63 bits; it is read from the bytes that an operator sends."""
    database = Database()
    database.last_zxid = zxid
    with pytest.raises(CorruptDataError, match="no server can continue"):
        read_snapshot_with_zxid(b"".join(encode_snapshot(database)), "that was sent")


@pytest.mark.parametrize("zxid", [0, 0x1_FFFFFFFF, (1 << 63) - (1 << 32) - 1])
def test_a_snapshot_with_a_zxid_that_leaves_room_is_read(zxid: int) -> None:
    """Up to the last one with an epoch's zxids after it."""
    database = Database()
    database.last_zxid = zxid
    assert read_snapshot_with_zxid(b"".join(encode_snapshot(database)), "that was sent").last_zxid == zxid


def restore_again(storage: Storage) -> None:
    """Restore `filled` as a whole, over the state that is there."""
    database = filled()
    restoration = storage.new_restoration()
    for part in encode_snapshot(database):
        restoration.write(part)
    restoration.read()
    storage.restore(restoration, database.last_zxid)


@pytest.mark.parametrize("separate_logs", [False, True])
def test_each_folder_before_a_restore_holds_one_state(tmp_path: Path, separate_logs: bool) -> None:
    """Also if the names of its files do not overlap with those that a folder holds, and the folders
    of one directory are gone."""
    logs = tmp_path / "logs" if separate_logs else tmp_path / "data"
    storage = Storage(FILES, str(tmp_path / "data"), str(logs), preallocate_bytes=4096)
    storage.open()
    write(storage, 1, 5)
    restore_again(storage)  # before it: log.1 and no snapshot
    restore_again(storage)  # before it: snapshot.c7 and no log
    storage.log.append(200, [transaction(200)])
    restore_again(storage)
    storage.close()

    def held(directory: Path) -> dict[str, set[str]]:
        return {path.name[15:]: {file.name for file in path.iterdir()} for path in directory.glob("before-restore.*")}

    if separate_logs:
        assert held(tmp_path / "data") == {"2": {"snapshot.c7"}, "3": {"snapshot.c7"}}
        assert held(logs) == {"1": {"log.1"}, "3": {"log.c8"}}
    else:
        assert held(logs) == {"1": {"log.1"}, "2": {"snapshot.c7"}, "3": {"snapshot.c7", "log.c8"}}


@pytest.mark.parametrize("step", range(1, 5))
def test_a_crash_during_a_restore_does_not_divide_the_state_before(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The next start moves the rest of its files to the same folder, although
    another one is there."""
    (tmp_path / "before-restore.1").mkdir()
    restoration = arriving(storage, filled())
    rename, left = OsFiles.rename, step

    def fail_later(self: OsFiles, old: str, new: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, "the machine stops")
        rename(self, old, new)

    with monkeypatch.context() as patched:
        patched.setattr(OsFiles, "rename", fail_later)
        with pytest.raises(OSError, match="the machine stops"):
            storage.restore(restoration, 199)
    storage.load()
    assert {path.name for path in (tmp_path / "before-restore.2").iterdir()} == {"snapshot.3", "log.1", "log.4"}
    assert {path.name for path in tmp_path.glob("before-restore.*")} == {"before-restore.1", "before-restore.2"}


def test_a_snapshot_that_comes_leaves_free_what_the_log_needs(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before it is written, by its size or by what has come so far."""
    reserve_bytes = 2 * 64 * 1024
    monkeypatch.setattr(OsFiles, "disk_space", lambda _self, _path: (1 << 30, reserve_bytes + 1000))
    restoration = storage.new_restoration()
    restoration.check_room(1000)
    restoration.write(b"x" * 1000)
    for ask in (lambda: restoration.check_room(1001), lambda: restoration.write(b"x" * 1001)):
        with pytest.raises(NoRoomError, match="no room"):
            ask()
    restoration.abandon()
    assert list((tmp_path / "version-2").iterdir()) == []


def test_two_writers_of_the_same_snapshot_do_not_disturb_each_other(tmp_path: Path, storage: Storage) -> None:
    """Each has a temporary name of its own; the one that is finished last gives the file."""
    database = filled()
    writers = [storage.begin_snapshot(database), storage.begin_snapshot(database)]
    for writer in writers:
        while (part := writer.next_part()) is not None:
            writer.write(part)
    for writer in writers:
        writer.finish()
    assert [path.name for path in (tmp_path / "version-2").iterdir()] == ["snapshot.c7"]
    assert storage.load()[0].last_zxid == 199

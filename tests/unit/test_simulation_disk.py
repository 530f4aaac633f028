"""The simulated disk keeps the contract of the real one, and forgets what was never synced."""

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.files import Files, OsFiles, make_dirs_durably
from barnabas.testing.simulation.disk import BLOCK_BYTES, Disk, DiskFault, SimulatedFiles
from barnabas.testing.simulation.loop import Killed, Process, SimulatedClock, SimulatedLoop
from support.files_contract import FilesContract


class TestOsFilesKeepTheContract(FilesContract):
    """The machine's file system."""

    @pytest.fixture
    def files(self) -> Files:
        return OsFiles()

    @pytest.fixture
    def home(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestSimulationKeepsTheContract(FilesContract):
    """The simulated disk."""

    @pytest.fixture
    def files(self) -> Files:
        return SimulatedFiles(new_disk())

    @pytest.fixture
    def home(self, files: Files) -> str:
        files.make_dirs("/home")
        return "/home"


def new_disk(seed: int = 1) -> Disk:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)
    loop.close()
    return Disk(Random(seed), clock)


def after_power_loss(seed: int, *, sync: bool, sync_dir: bool) -> SimulatedFiles:
    disk = new_disk(seed)
    files = SimulatedFiles(disk)
    make_dirs_durably(files, "/data")
    file = files.open("/data/log", create=True)
    file.append([b"x" * 5000])
    if sync:
        file.sync()
    if sync_dir:
        files.sync_dir("/data")
    file.append([b"y" * 5000])
    disk.lose_power()
    return SimulatedFiles(disk)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_with_its_directory_survives_a_power_loss(seed: int) -> None:
    """The rest may be there, in whole blocks, or zeros, or not."""
    data = after_power_loss(seed, sync=True, sync_dir=True).read("/data/log")
    assert data[:5000] == b"x" * 5000
    assert set(data[5000:]) <= {ord("y"), 0}


def test_without_the_directory_s_sync_a_new_file_can_be_lost() -> None:
    """As POSIX has it: the name is not the file's."""
    found = {after_power_loss(seed, sync=True, sync_dir=False).exists("/data/log") for seed in range(30)}
    assert found == {True, False}


def test_unsynced_bytes_come_back_torn_in_blocks() -> None:
    """Over the seeds: all of them, none, or blocks with holes; never anything but a
    block's old or new bytes."""
    seen = set()
    for seed in range(60):
        data = after_power_loss(seed, sync=False, sync_dir=True).read("/data/log")
        blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
        assert all(block.strip(b"\0") in (block, b"") or b"\0" in block for block in blocks)
        written = [bool(block.strip(b"\0")) for block in blocks]
        seen.add("none" if not any(written) else "all" if all(written) and len(data) == 10_000 else "torn")
    assert seen == {"none", "all", "torn"}


@given(st.lists(st.tuples(st.sampled_from(["append", "write", "truncate", "sync"]), st.integers(0, 3000)), max_size=30))
def test_a_file_that_was_synced_last_survives_whole(steps: list[tuple[str, int]]) -> None:
    """Against a plain bytearray: whatever was done to the file, its content at the
    last sync comes back."""
    disk = new_disk()
    files = SimulatedFiles(disk)
    file = files.open("/log", create=True)
    files.sync_dir("/")
    model = bytearray()
    for number, (step, value) in enumerate(steps):
        piece = bytes([number + 1]) * (value % 700)
        if step == "append":
            file.append([piece])
            model += piece
        elif step == "write":
            at = min(value, len(model))
            file.write_at(at, piece)
            model[at : at + len(piece)] = piece
        elif step == "truncate":
            file.truncate(value)
            model = model[:value] + bytes(max(value - len(model), 0))
        else:
            file.sync()
        assert file.read_at(0, 1 << 20) == model
    file.sync()
    disk.lose_power()
    assert SimulatedFiles(disk).read("/log") == model


def test_a_failed_sync_is_reported_once_and_its_bytes_are_gone() -> None:
    """The next sync reports success; after the process nothing of them is left."""
    disk = new_disk()
    files = SimulatedFiles(disk)
    file = files.open("/log", create=True)
    file.append([b"a" * BLOCK_BYTES])
    file.sync()
    disk.faults.append(DiskFault("sync"))
    file.append([b"b" * BLOCK_BYTES])
    with pytest.raises(OSError) as raised:
        file.sync()
    assert raised.value.errno == errno.EIO
    file.sync()
    assert file.read_at(BLOCK_BYTES, 1) == b"b"
    disk.evict()
    assert files.read("/log")[BLOCK_BYTES:].strip(b"\0") == b""


def test_a_full_disk_refuses_the_append_and_keeps_the_file() -> None:
    """ENOSPC leaves the end where it was; freed room can be used."""
    disk = new_disk()
    files = SimulatedFiles(disk)
    file = files.open("/log", create=True)
    file.append([bytes(1000)])
    disk.capacity_bytes = 1500
    with pytest.raises(OSError) as raised:
        file.append([bytes(600)])
    assert (raised.value.errno, file.size()) == (errno.ENOSPC, 1000)
    disk.capacity_bytes = 3000
    file.append([bytes(600)])
    files.remove("/log")
    assert files.disk_space("/") == (3000, 3000)


def test_a_process_dies_in_the_middle_of_its_operations() -> None:
    """The operation that was to come is not done, nor is any after it; what was written stays."""
    disk = new_disk()
    loop = SimulatedLoop()
    process = Process(loop, "p", Random(1))
    files = SimulatedFiles(disk, process)
    files.die_in, files.on_death = 2, process.die
    file = files.open("/log", create=True)
    file.append([b"one"])
    with pytest.raises(Killed):
        file.append([b"two"])
    with pytest.raises(Killed):
        files.exists("/log")
    assert SimulatedFiles(disk).read("/log") == b"one"
    loop.close()


def test_a_power_loss_takes_nothing_below_both_sizes_of_a_file_that_was_cut() -> None:
    """The cut may come to the disk or not; what was synced before it and stands on
    both sides of it stays."""
    for seed in range(50):
        files = SimulatedFiles(new_disk(seed))
        file = files.open("/file", create=True)
        file.append([b"x" * 2000])
        file.sync()
        files.sync_dir("/")
        file.truncate(1030)
        files.disk.lose_power()
        assert files.read("/file")[:1030] == b"x" * 1030

"""Folders that hold records or credentials: only their owner can enter what is made here."""

import os
import stat
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.base.private_files import make_private_dirs
from barnabas.cli import up
from barnabas.pipelines import run
from support.broker import DataPath


@pytest.fixture(autouse=True)
def _no_umask():
    """So that the modes are those that are asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_and_its_missing_parents_are_their_owners_alone(tmp_path: Path) -> None:
    """With a slash at the end too; again is fine."""
    for _ in range(2):
        make_private_dirs(f"{tmp_path}/a/b/c/")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """An administrator may have opened it for a group."""
    (tmp_path / "shared").mkdir(mode=0o750)
    make_private_dirs(tmp_path / "shared" / "new")
    assert (mode(tmp_path / "shared"), mode(tmp_path / "shared" / "new")) == (0o750, 0o700)


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    """With the path, as of `os.makedirs`."""
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError) as error:
        make_private_dirs(tmp_path / "file")
    assert error.value.filename == str(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_private_dirs(tmp_path / "file" / "below")


def test_log_dirs_and_partitions_are_their_owners_alone(tmp_path: Path) -> None:
    """A broker's log dir that is missing, and each partition in one that is there."""
    (tmp_path / "there").mkdir(mode=0o755)
    for directory in (tmp_path / "new", tmp_path / "there"):
        DataPath(directory).lead("t")
        assert mode(directory / "t-0") == 0o700
    assert mode(tmp_path / "new") == 0o700


def test_the_folder_of_a_local_cluster_is_its_owners_alone(tmp_path: Path) -> None:
    """`barnabas up --data-dir`: it holds properties with passwords, and the records."""
    with up._data_dir(str(tmp_path / "new")) as directory:
        assert mode(directory) == 0o700


def test_the_checkpoint_of_a_flow_is_its_owners_alone(tmp_path: Path) -> None:
    """It holds keys and values of the state."""
    with run._locked(tmp_path / "new"):
        assert mode(tmp_path / "new") == 0o700


needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
OTHER = 65534


@needs_root
@pytest.mark.parametrize("what", ["folder", "link", "link above"])
def test_a_folder_or_a_link_of_another_user_is_refused(tmp_path: Path, what: str) -> None:
    """For records, a checkpoint, and a lock file: with the path and what to do."""
    directory = tmp_path / "a" / "logs"
    directory.mkdir(parents=True)
    wrong = {"folder": directory, "link": tmp_path / "link", "link above": tmp_path / "link"}[what]
    if what != "folder":
        wrong.symlink_to(directory if what == "link" else tmp_path / "a")
    os.chown(wrong, OTHER, OTHER, follow_symlinks=False)
    used = wrong / "logs" if what == "link above" else wrong
    for use in (
        lambda: OsFiles().make_dirs(str(used)),
        lambda: OsFiles().lock(f"{used}/.lock").__enter__(),
        lambda: run._locked(used).__enter__(),
        lambda: up._data_dir(str(used)).__enter__(),
        lambda: DataPath(used),
    ):
        with pytest.raises((OSError, BarnabasError), match=rf"belongs to another user \(uid {OTHER}\).*chown"):
            use()
    assert os.listdir(directory) == []


@needs_root
def test_a_folder_of_roots_is_used(tmp_path: Path) -> None:
    """So is one through its link: root could change everything anyway."""
    (tmp_path / "link").symlink_to(tmp_path)
    make_private_dirs(tmp_path / "link")
    with OsFiles().lock(f"{tmp_path}/link/.lock"):
        pass


@pytest.mark.parametrize("left", ["link", "dangling link", "file"])
def test_a_file_that_is_written_beside_and_renamed_is_a_new_one(tmp_path: Path, left: str) -> None:
    """What a planted link leads to keeps its contents; what a crash left there is no obstacle."""
    victim, temporary = tmp_path / "victim", tmp_path / "file.tmp"
    if left == "file":
        temporary.write_text("much longer than what comes")
    else:
        temporary.symlink_to(victim)
    if left != "dangling link":
        victim.write_text("important")
    OsFiles().write_atomically(str(tmp_path / "file"), b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()
    assert not temporary.exists()
    assert victim.exists() == (left != "dangling link")
    assert not victim.exists() or victim.read_text() == "important"


@needs_root
@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_is_not_written_through_a_link_of_another_user(tmp_path: Path, is_there: bool) -> None:
    """Nor made; a link of this user's leads where it leads."""
    victim, link = tmp_path / "victim", tmp_path / "00000000000000000000.log"
    if is_there:
        victim.write_text("important")
    link.symlink_to(victim)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    for use in (lambda: OsFiles().open(str(link), create=True), lambda: OsFiles().open(str(link), keep=True)):
        with pytest.raises(PermissionError, match="link of another user"):
            use()
    with pytest.raises(PermissionError, match="link of another user"), OsFiles().lock(str(link)):
        pass
    assert victim.exists() == is_there
    os.chown(link, 0, 0, follow_symlinks=False)
    OsFiles().open(str(link), create=True).close()
    assert victim.exists()


def test_the_files_of_servers_make_private_folders(tmp_path: Path) -> None:
    """So do those of a coordination server, whose transaction log has SCRAM keys."""
    OsFiles().make_dirs(str(tmp_path / "data" / "version-2"))
    assert mode(tmp_path / "data" / "version-2") == 0o700

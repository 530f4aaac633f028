"""Folders that hold records or credentials: only their owner can enter what is made here."""

import os
import stat
from pathlib import Path

import pytest

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


def test_the_files_of_servers_make_private_folders(tmp_path: Path) -> None:
    """So do those of a coordination server, whose transaction log has SCRAM keys."""
    OsFiles().make_dirs(str(tmp_path / "data" / "version-2"))
    assert mode(tmp_path / "data" / "version-2") == 0o700

"""Folders that hold records or credentials: only their owner can enter what is made here."""

import os
import stat
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.base.private_files import make_private_dirs
from barnabas.cli.local import up
from barnabas.pipelines.running import guards as run_guards
from support.broker import DataPath


@pytest.fixture(autouse=True)
def _no_umask():
    """So that the modes are those that are asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_its_owners_alone_and_its_missing_parents_have_the_usual_mode(tmp_path: Path) -> None:
    """Others may read what lies beside it. With a slash at the end too; again is fine."""
    os.umask(0o027)
    for _ in range(2):
        make_private_dirs(f"{tmp_path}/a/b/c/")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o750, 0o750, 0o700]


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
    with run_guards.locked_checkpoint(tmp_path / "new"):
        assert mode(tmp_path / "new") == 0o700


needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
OTHER = 65534


def uses(used: Path):
    """For records, a checkpoint, and a lock file."""
    return (
        lambda: OsFiles().make_dirs(str(used)),
        lambda: OsFiles().lock(f"{used}/.lock").__enter__(),
        lambda: run_guards.locked_checkpoint(used).__enter__(),
        lambda: up._data_dir(str(used)).__enter__(),
        lambda: DataPath(used),
    )


@needs_root
@pytest.mark.parametrize("shared", [0o1777, 0o777, 0o1755])
@pytest.mark.parametrize("what", ["folder", "link", "link above", "folder above", "behind own link", "to be made"])
def test_a_folder_or_a_link_of_another_user_is_refused_where_anybody_can_make_it(
    what: str, shared: int, tmp_path: Path
) -> None:
    """With the path and what to do."""
    tmp = tmp_path / "tmp"
    directory = tmp / "a" / "logs"
    directory.mkdir(parents=True, mode=0o755)
    tmp.chmod(shared)
    (tmp / "a").chmod(0o755)
    (tmp / "link").symlink_to(tmp / "a")
    (tmp_path / "own").symlink_to("tmp/a")
    wrong, used = {
        "folder": (tmp / "a", tmp / "a"),
        "link": (tmp / "link", tmp / "link"),
        "link above": (tmp / "link", tmp / "link" / "logs"),
        "folder above": (tmp / "a", directory),
        "behind own link": (tmp / "a", tmp_path / "own" / "logs"),
        "to be made": (tmp / "a", tmp / "a" / "new" / "logs"),
    }[what]
    os.chown(wrong, OTHER, OTHER, follow_symlinks=False)
    for use in uses(used)[::2] if what == "to be made" else uses(used):
        with pytest.raises((OSError, BarnabasError), match=rf"belongs to another user \(uid {OTHER}\).*chown.*choose"):
            use()
    assert os.listdir(directory) == []
    assert os.listdir(tmp / "a") == ["logs"]


@needs_root
def test_a_folder_of_another_user_is_used_where_only_its_owner_can_have_made_it(tmp_path: Path) -> None:
    """As of a user for whom root starts a flow in a container."""
    directory = tmp_path / "home" / "flow"
    directory.mkdir(parents=True, mode=0o755)
    tmp_path.chmod(0o755)
    directory.parent.chmod(0o755)
    for each in (directory.parent, directory):
        os.chown(each, OTHER, OTHER)
    make_private_dirs(directory)
    make_private_dirs(directory / "new")
    with run_guards.locked_checkpoint(directory):
        assert (directory / ".lock").exists()


@needs_root
def test_a_folder_that_shared_storage_gives_to_another_user_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS with all_squash: what is made belongs to a user of the server."""
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        os.chown(path, OTHER, OTHER)

    monkeypatch.setattr(os, "mkdir", mkdir)
    tmp_path.chmod(0o755)
    os.umask(0o022)
    for _ in range(2):
        with run_guards.locked_checkpoint(tmp_path / "flows" / "orders"):
            assert mode(tmp_path / "flows" / "orders") == 0o700


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

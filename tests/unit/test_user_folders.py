"""Files of the user where the user has no home, or one that cannot be written."""

import os
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.user_folders import user_folder, writable_user_folder
from barnabas.cli.connection.contexts import load_contexts
from barnabas.cli.machine.clusters import LocalCluster, choose_cluster, locked, record

VARIABLE = "XDG_STATE_HOME"


@pytest.fixture(autouse=True)
def _temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder is named, and temporary files are in one of the test's."""
    for name in (VARIABLE, "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def in_temporary_files(tmp_path: Path) -> Path:
    return tmp_path / f"barnabas-{os.getuid()}" / ".state"


def test_files_lie_below_the_home_or_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative folder has no effect, for it would be another one in each working directory."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_folder(VARIABLE, ".state") == tmp_path / "home" / ".state" / "barnabas"
    assert writable_user_folder(VARIABLE, ".state") == user_folder(VARIABLE, ".state")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "named"))
    assert (
        writable_user_folder(VARIABLE, ".state") == user_folder(VARIABLE, ".state") == tmp_path / "named" / "barnabas"
    )
    monkeypatch.setenv(VARIABLE, "named")
    assert user_folder(VARIABLE, ".state") == tmp_path / "home" / ".state" / "barnabas"
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_home_or_with_one_that_is_no_folder_has_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container's user with a number and no name, for one; no file is made in the
    working directory."""
    monkeypatch.setenv("HOME", "/dev/null")
    assert writable_user_folder(VARIABLE, ".state") == in_temporary_files(tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where the user has no entry
    assert user_folder(VARIABLE, ".state") == Path("/nonexistent/.state/barnabas")


def test_a_folder_that_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They could lead commands to a cluster, and processes, of their choice."""
    monkeypatch.setenv("HOME", "/dev/null")
    folder = in_temporary_files(tmp_path).parent
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(BarnabasError, match=f"{folder} is not a folder that only you can write: set {VARIABLE} to one"):
        writable_user_folder(VARIABLE, ".state")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(BarnabasError, match="not a folder that only you can write"):
        writable_user_folder(VARIABLE, ".state")


def test_a_running_cluster_is_found_and_contexts_are_none_without_a_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``status``, ``down`` and ``logs`` know what ``up`` has started."""
    monkeypatch.setenv("HOME", "/dev/null")
    directory = tmp_path / "data"
    directory.mkdir()
    with locked(directory):
        record(LocalCluster(str(directory), os.getpid(), "127.0.0.1:1", "127.0.0.1:2"))
        assert choose_cluster(None).bootstrap_servers == "127.0.0.1:1"
    with pytest.raises(BarnabasError, match="no cluster of yours runs here"):
        choose_cluster(None)
    assert load_contexts() == ({}, None)

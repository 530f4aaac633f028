"""What every `barnabas.base.files.Files` promises, as tests: the real one and the
simulated one run the same."""

import pytest

from barnabas.base.files import Files, make_dirs_durably


class FilesContract:
    """The tests; a class that inherits them gives ``files`` and ``home``, an empty
    directory, as fixtures."""

    def test_a_file_is_made_only_when_asked(self, files: Files, home: str) -> None:
        """Opening what is not there fails as the operating system says it."""
        with pytest.raises(FileNotFoundError):
            files.open(f"{home}/log")
        with pytest.raises(FileNotFoundError):
            files.open(f"{home}/nowhere/log", create=True)
        files.open(f"{home}/log", create=True).close()
        assert files.list(home) == ["log"]
        assert (files.size(f"{home}/log"), files.is_dir(f"{home}/log"), files.is_dir(home)) == (0, False, True)

    def test_parts_are_appended_in_order_and_read_at_positions(self, files: Files, home: str) -> None:
        """Reads past the end are short; empty parts are nothing."""
        file = files.open(f"{home}/log", create=True)
        file.append([b"one", bytearray(b""), memoryview(b"two")])
        file.append([b"three"])
        assert (file.size(), file.read_at(3, 3), file.read_at(8, 100), file.read_at(100, 1)) == (
            11,
            b"two",
            b"ree",
            b"",
        )
        file.sync()
        file.close()
        file.close()
        assert files.read(f"{home}/log") == b"onetwothree"

    def test_bytes_are_overwritten_in_place_and_the_end_moves(self, files: Files, home: str) -> None:
        """A write at the end extends the file; truncate cuts, or extends with zeros."""
        file = files.open(f"{home}/log", create=True)
        file.append([b"0123456789"])
        file.write_at(8, b"abcd")
        assert file.read_at(0, 20) == b"01234567abcd"
        file.truncate(3)
        file.truncate(6)
        assert (file.size(), file.read_at(0, 20)) == (6, b"012\0\0\0")
        file.append([b"end"])
        assert file.read_at(0, 20) == b"012\0\0\0end"
        file.close()

    def test_two_openings_see_the_same_bytes(self, files: Files, home: str) -> None:
        """A reader sees what a writer wrote, synced or not."""
        writer = files.open(f"{home}/log", create=True)
        reader = files.open(f"{home}/log", read_only=True)
        writer.append([b"news"])
        assert reader.read_at(0, 10) == b"news"
        with pytest.raises(OSError, match="Bad file descriptor"):
            reader.write_at(0, b"x")
        writer.close()
        reader.close()

    def test_an_open_file_outlives_its_name(self, files: Files, home: str) -> None:
        """A reader of a deleted segment goes on."""
        file = files.open(f"{home}/log", create=True)
        file.append([b"still here"])
        files.remove(f"{home}/log")
        assert not files.exists(f"{home}/log")
        assert file.read_at(0, 5) == b"still"
        file.close()
        with pytest.raises(FileNotFoundError):
            files.remove(f"{home}/log")

    def test_a_small_file_is_replaced_at_once(self, files: Files, home: str) -> None:
        """No temporary file stays."""
        files.write_atomically(f"{home}/checkpoint", b"old")
        files.write_atomically(f"{home}/checkpoint", b"new", sync=False)
        assert (files.read(f"{home}/checkpoint"), files.list(home)) == (b"new", ["checkpoint"])

    def test_directories_are_made_with_their_parents_and_removed_with_their_children(
        self, files: Files, home: str
    ) -> None:
        """Both are fine when there is nothing to do."""
        files.make_dirs(f"{home}/a/b/c")
        files.make_dirs(f"{home}/a/b")
        make_dirs_durably(files, f"{home}/x/y")
        make_dirs_durably(files, f"{home}/x/y")
        files.open(f"{home}/a/b/file", create=True).close()
        assert files.list(f"{home}/a/b") == ["c", "file"]
        with pytest.raises(IsADirectoryError):
            files.open(f"{home}/a/b")
        files.remove_tree(f"{home}/a")
        files.remove_tree(f"{home}/a")
        assert files.list(home) == ["x"]
        with pytest.raises(FileNotFoundError):
            files.list(f"{home}/a")

    def test_a_renamed_file_replaces_and_a_renamed_directory_keeps_its_files(self, files: Files, home: str) -> None:
        """As segments are swapped and partitions' folders are marked for deletion."""
        files.write_atomically(f"{home}/old", b"1")
        files.write_atomically(f"{home}/new", b"2")
        files.rename(f"{home}/old", f"{home}/new")
        files.make_dirs(f"{home}/topic-0")
        files.write_atomically(f"{home}/topic-0/log", b"3")
        files.rename(f"{home}/topic-0", f"{home}/topic-0-delete")
        files.sync_dir(home)
        assert files.list(home) == ["new", "topic-0-delete"]
        assert files.read(f"{home}/new") + files.read(f"{home}/topic-0-delete/log") == b"13"
        with pytest.raises(FileNotFoundError):
            files.rename(f"{home}/old", f"{home}/other")

    def test_a_lock_has_one_holder(self, files: Files, home: str) -> None:
        """The second one hears that at once; when the first lets go, it can have it."""
        with files.lock(f"{home}/.lock"), pytest.raises(BlockingIOError), files.lock(f"{home}/.lock"):
            pass
        with files.lock(f"{home}/.lock"):
            pass

    def test_the_disk_reports_its_space(self, files: Files, home: str) -> None:
        """Free bytes are some of all bytes."""
        total, free = files.disk_space(home)
        assert 0 < free <= total

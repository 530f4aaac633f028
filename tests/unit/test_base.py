"""Identifiers, settings and the file seam."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, uuid_from_text, uuid_text
from barnabas.base.randomness import random_uuid
from barnabas.base.settings import Definitions, Kind, Setting, at_least, between, one_of, read_properties

DEFINITIONS = Definitions(
    [
        Setting("broker.id", Kind.INT, "-1", check=at_least(-1)),
        Setting("log.dirs", Kind.LIST, "/tmp/a"),
        Setting("auto.create.topics.enable", Kind.BOOLEAN, "true"),
        Setting("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", check=between(0, 1)),
        Setting("message.timestamp.type", Kind.STRING, "CreateTime", check=one_of("CreateTime", "LogAppendTime")),
        Setting("retention.ms", Kind.LONG, None),
        Setting("zookeeper.connect", Kind.STRING, None, required=True),
    ]
)


@given(st.binary(min_size=16, max_size=16))
def test_an_id_survives_its_printed_form(raw: bytes) -> None:
    """Text and bytes of an id stand for each other."""
    assert uuid_from_text(uuid_text(raw)) == raw


@pytest.mark.parametrize("text", ["", "short", "not base64 at all !!!!", "A" * 23, "é" * 22])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    """The error is one for a person, whatever the text."""
    with pytest.raises(ConfigError):
        uuid_from_text(text)


def test_random_ids_replay_from_their_seed_and_never_start_with_a_dash() -> None:
    """A printed topic id can be given to a command-line tool."""
    ids = [random_uuid(Random(seed)) for seed in range(2000)]
    assert ids == [random_uuid(Random(seed)) for seed in range(2000)]
    assert not [text for text in map(uuid_text, ids) if text.startswith("-")]
    assert len(set(ids)) == 2000


def test_a_partition_prints_as_its_folder() -> None:
    """The name that Kafka gives a partition's directory."""
    assert str(TopicPartition("topic1", 2)) == "topic1-2"


def test_settings_are_typed_and_defaults_fill_in() -> None:
    """Given texts win; the rest has its default."""
    values = DEFINITIONS.parse({"zookeeper.connect": "localhost:2181", "log.dirs": "/a, /b", "other": "1"})
    assert values["log.dirs"] == ["/a", "/b"]
    assert values["auto.create.topics.enable"] is True
    assert values["retention.ms"] is None
    assert values.unknown() == ["other"]
    assert values.is_set("log.dirs")
    assert not values.is_set("broker.id")


def test_replacing_a_setting_by_none_takes_the_default_back() -> None:
    """The original values stay as they were."""
    values = DEFINITIONS.parse({"zookeeper.connect": "x", "broker.id": "7"})
    changed = values.replace({"broker.id": None, "retention.ms": "5"})
    assert (changed["broker.id"], changed["retention.ms"]) == (-1, 5)
    assert values["broker.id"] == 7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broker.id", "-2"),
        ("broker.id", "seven"),
        ("broker.id", str(2**31)),
        ("retention.ms", str(2**63)),
        ("auto.create.topics.enable", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "half"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "0_1.5"),
        ("retention.ms", "1_000"),
        ("message.timestamp.type", "Never"),
    ],
)
def test_a_bad_value_names_its_property(name: str, text: str) -> None:
    """The message says which property and which value."""
    with pytest.raises(ConfigError, match=f"Invalid value {text} for configuration {name}"):
        DEFINITIONS.parse({"zookeeper.connect": "x", name: text})


def test_a_missing_required_property_is_named() -> None:
    """Start-up fails with the name of what is missing."""
    with pytest.raises(ConfigError, match="zookeeper.connect"):
        DEFINITIONS.parse({})


def test_properties_files_are_read_as_java_does() -> None:
    """Comments, continued lines, either separator, the last of equal names."""
    text = "# comment\nlog.dirs=/a,\\\n  /b\nbroker.id: 3\nbroker.id=4\n"
    assert read_properties(text) == {"log.dirs": "/a,/b", "broker.id": "4"}


def test_appended_parts_stand_in_order_and_are_read_back(tmp_path) -> None:
    """More parts than one system call takes are written all the same."""
    file = OsFiles().open(str(tmp_path / "f"), create=True)
    parts = [bytes([n % 256]) * (n % 7) for n in range(3000)]
    file.append(parts)
    file.append([b"tail"])
    whole = b"".join(parts) + b"tail"
    assert file.size() == len(whole)
    assert file.read_at(0, len(whole) + 10) == whole
    assert FileSlice(file, 5, 20).read() == whole[5:25]
    file.truncate(3)
    assert file.read_at(0, 10) == whole[:3]
    file.close()
    file.close()


@pytest.mark.parametrize(
    "fail",
    [
        lambda files, folder: files.open(folder, read_only=True).read_at(0, 10),
        lambda files, folder: files.open(folder),
        lambda files, folder: files.open(folder, create=True),
        lambda files, folder: files.read(folder),
        lambda files, folder: files.list(f"{folder}/missing"),
        lambda files, folder: files.size(f"{folder}/missing"),
        lambda files, folder: files.sync_dir(f"{folder}/missing"),
        lambda files, folder: files.write_atomically(f"{folder}/missing/file", b""),
        lambda files, folder: files.open(f"{folder}/file", read_only=True).append([b"x"]),
        lambda files, folder: files.open(f"{folder}/file", read_only=True).append([b"x"] * 3000),
        lambda files, folder: files.open(f"{folder}/file", read_only=True).write_at(0, b"x"),
        lambda files, folder: files.open(f"{folder}/file", read_only=True).truncate(5),
    ],
)
def test_every_error_of_the_file_system_names_its_path(tmp_path: Path, fail: Callable[[OsFiles, str], object]) -> None:
    """Calls on a descriptor do not know it, and a directory in the place of a file is
    noticed by the first read."""
    folder = tmp_path / "folder-of-this-test"
    folder.mkdir()
    (folder / "file").touch()
    with pytest.raises(OSError, match="folder-of-this-test"):
        fail(OsFiles(), str(folder))


@pytest.mark.parametrize("parts", [[b"y" * 400, b"z" * 400], [b"y" * 800]], ids=["two parts", "one part"])
def test_an_append_that_fails_leaves_the_end_where_it_was(tmp_path, parts: list[bytes]) -> None:
    """A full disk never leaves half a batch behind that a later append would follow."""
    import resource

    file = OsFiles().open(str(tmp_path / "f"), create=True)
    file.append([b"x" * 1000])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        with pytest.raises(OSError) as raised:
            file.append(parts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert raised.value.errno == errno.EFBIG
    assert file.size() == os.path.getsize(tmp_path / "f") == 1000
    file.append([b"after"])
    assert file.read_at(995, 100) == b"x" * 5 + b"after"
    file.close()


def test_a_small_file_is_replaced_whole(tmp_path) -> None:
    """The new bytes are there and no temporary file is left."""
    files = OsFiles()
    path = str(tmp_path / "checkpoint")
    files.write_atomically(path, b"one")
    files.write_atomically(path, b"two", sync=False)
    assert files.read(path) == b"two"
    assert files.list(str(tmp_path)) == ["checkpoint"]


def test_a_lock_file_is_held_by_one(tmp_path) -> None:
    """A second holder is refused until the first lets go."""
    files = OsFiles()
    path = str(tmp_path / ".lock")
    with files.lock(path), pytest.raises(BlockingIOError), files.lock(path):
        pass
    with files.lock(path):
        pass

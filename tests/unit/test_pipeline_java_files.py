"""Files that Java reads in place of arguments, which every user of a machine can see."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import strategies as st

from barnabas.pipelines.spark.java_files import argument_file
from barnabas.pipelines.spark.jvm import JavaNotFoundError, find_java

_LETTERS = st.text(st.characters(exclude_categories=["Cs"]))


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

"""Numbers from outside are read strictly."""

import argparse
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.numbers import LARGEST_INT64, number_from, whole_number
from barnabas.cli.groups.reset_offsets import _plan_file, parse_reset_plan
from barnabas.cli.options.helpful_parser import HelpfulParser


@given(st.integers(-LARGEST_INT64, LARGEST_INT64))
def test_each_number_of_64_bits_is_read(number: int) -> None:
    """With its sign, which may be a plus."""
    assert whole_number(str(number)) == number
    assert whole_number(f"{number:+}") == number


@pytest.mark.parametrize(
    "text", ["", " 5", "5 ", "1_000", "1,5", "1.5", "1e3", "0x10", "\u0663", "--1", "9" * 19, "9" * 5000]
)
def test_other_texts_are_no_numbers(text: str) -> None:
    """Python's int takes several of them."""
    with pytest.raises(ValueError, match="is no whole number of 64 bits"):
        whole_number(text)


@pytest.mark.parametrize(
    ("text", "number"), [("1.5", 1.5), ("-2", -2.0), ("1e3", 1000.0), (".5", 0.5), ("inf", math.inf)]
)
def test_numbers_with_a_point_are_read(text: str, number: float) -> None:
    """Seconds and the like."""
    assert number_from(text) == number


@pytest.mark.parametrize("text", ["", "1,5", "1_0.5", " 1", "nan", "0x1p3", "\u0663"])
def test_other_texts_are_no_numbers_with_a_point(text: str) -> None:
    """Nothing compares with NaN, and a comma would be a thousand."""
    with pytest.raises(ValueError, match="is no number"):
        number_from(text)


@pytest.mark.parametrize(
    ("option", "text"), [("--count", "1_000"), ("--count", "\u0663"), ("--seconds", "nan"), ("--seconds", "1_0.5")]
)
def test_options_take_numbers_strictly(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command's: its parser reads what is declared as int or float."""
    parser = HelpfulParser(prog="tool")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    assert parser.parse_args(["--count", "5", "--seconds", "1.5"]) == argparse.Namespace(count=5, seconds=1.5)
    with pytest.raises(SystemExit):
        parser.parse_args([option, text])
    kind = "int" if option == "--count" else "float"
    assert f"argument {option}: invalid {kind} value: {text!r}" in capsys.readouterr().err


def test_a_plan_of_offsets_is_read_strictly(tmp_path: Path) -> None:
    """With the mark that spreadsheets write; other encodings are named, and numbers are whole."""
    file = tmp_path / "plan.csv"
    given = argparse.Namespace(from_file=str(file), group=["g"])
    file.write_bytes("\ufefforders,0,17\n".encode())
    assert _plan_file(given) == {"g": {TopicPartition("orders", 0): 17}}
    file.write_bytes("orders,0,17\n".encode("utf-16"))
    with pytest.raises(ConfigError, match="this is no text in UTF-8"):
        _plan_file(given)
    for line in ("orders,0,1_7", "orders,0, 17", "orders,0,\u0661", "orders,0,99999999999999999999"):
        with pytest.raises(ConfigError, match="line 1: .*offset is expected"):
            parse_reset_plan(line, ["g"], "plan.csv")

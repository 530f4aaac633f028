"""Regular expressions of clients: they match as RE2's do, in a bounded number of steps."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.re2 import Re2Error, Re2Pattern, json_schema_pattern
from barnabas.base.re2_syntax import CharClass, parse_re2

KEPT = json.loads((Path(__file__).parents[1] / "support" / "kept" / "transactional_id_patterns.json").read_text())
"""Patterns with the transactional ids that a broker of Apache Kafka 4.4.0 listed for them; null for
INVALID_REGULAR_EXPRESSION."""
TOO_LARGE = {"(a{100}){100}", "((a{100}){10}){10}"}
"""Apache's broker takes them."""
SCRIPTS = {r"\p{Greek}", r"\P{Greek}", r"\p{Han}+", r"\p{Latin}"}
LETTERS = "abAk1_-é\n {"


def matches(pattern: Re2Pattern, text: str) -> tuple[bool, int]:
    """Whether a text matches, and after how many turns."""
    turns = 0
    task = pattern.matches(text)
    while True:
        try:
            next(task)
        except StopIteration as ended:
            return ended.value, turns
        turns += 1


def test_patterns_match_what_apaches_broker_lists() -> None:
    """Syntax errors, classes, flags, escapes and case as there."""
    wrong = {}
    for text, expected in KEPT["answers"].items():
        try:
            pattern = Re2Pattern(text)
        except Re2Error:
            found = None
        else:
            found = "".join("1" if matches(pattern, each)[0] else "0" for each in KEPT["ids"])
        if found != expected:
            wrong[text] = found
    assert wrong == dict.fromkeys(TOO_LARGE | SCRIPTS)


ATOMS = st.one_of(
    st.sampled_from(LETTERS).map(re.escape),
    st.sampled_from([".", r"\d", r"\D", r"\w", r"\W", r"\s", "[ab]", "[^a]", "[a-k_]", r"[^\d-]", r"\x61", r"\141"]),
)
PLACES = st.sampled_from([r"\b", r"\A"])
REPETITIONS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "{2}", "{0,2}", "{1,}"])


def _group(opening: str, inner: str, repetition: str) -> str:
    """Python's matcher repeats parts that match nothing in another way."""
    return f"{opening}{inner}){'' if re.fullmatch(inner, '', re.ASCII) else repetition}"


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.lists(parts, min_size=1, max_size=4).map("".join)
    chosen = st.lists(parts, min_size=2, max_size=3).map("|".join)
    return st.builds(_group, st.sampled_from(["(", "(?:"]), joined | chosen, REPETITIONS)


PARTS = st.recursive(st.builds("{}{}".format, ATOMS, REPETITIONS), _larger, max_leaves=8)
PATTERNS = st.lists(PARTS | PLACES, max_size=5).map("".join)


@given(PATTERNS, st.sampled_from(["", "(?i)", "(?s)"]), st.text("abAk1_- \n", max_size=8))
def test_patterns_match_what_pythons_do(pattern: str, flags: str, text: str) -> None:
    """In the syntax that both have."""
    expected = re.fullmatch(flags + pattern, text, re.ASCII) is not None
    assert matches(Re2Pattern(flags + pattern), text)[0] is expected


@given(st.text(LETTERS + r"()[]{}*+?|\^$.,:=!<>PQEdpLx09&#", max_size=30))
def test_any_pattern_is_taken_or_refused(pattern: str) -> None:
    """The matcher raises no other error."""
    try:
        made = Re2Pattern(pattern)
    except Re2Error:
        return
    matches(made, "a1-\n")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*$", "(.?){400}", "(a*)*b", "([a-z]+)*1"])
def test_a_text_takes_one_turn_for_a_character_at_most(pattern: str) -> None:
    """However many ways there are to match it."""
    found, turns = matches(Re2Pattern(pattern), "a" * 2_000 + "!")
    assert not found
    assert turns <= 2_001


def test_what_was_seen_once_takes_no_turn() -> None:
    """A pattern that meets many texts is fast."""
    pattern = Re2Pattern("orders-[0-9]+")
    assert matches(pattern, "orders-12") == (True, 10)
    assert matches(pattern, "orders-12") == (True, 0)


def test_a_pattern_that_has_met_very_many_texts_still_matches() -> None:
    """What it remembers is bounded, and forgotten when there is too much."""
    pattern = Re2Pattern("(.?){300}")
    for number in range(0x4E00, 0x4E00 + 400):
        assert matches(pattern, chr(number) * 2)[0]
    assert not matches(pattern, "x" * 301)[0]
    assert matches(pattern, "x" * 300)[0]


def test_a_class_that_names_a_part_many_times_asks_it_once_for_a_letter() -> None:
    """Hundreds of parts with the forms of a letter would hold the event loop within one turn."""
    tree = parse_re2(r"(?i)[\pN\d" + r"\pN\d" * 190 + "]")
    assert isinstance(tree, CharClass)
    assert len(tree.parts) == 2
    assert tree.has("7")
    assert not tree.has("k")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a" * 1_001, "more than 1000 characters"),
        ("(" * 101 + ")" * 101, "nests too deeply"),
        ("(((a{1000}){1000}){1000}){1000}", "too large"),
        ("(((|){1000}){1000}){1000}", "too large"),
        ("(((a{0}){1000}){1000}){1000}", "too large"),
        ("a{1001}", "invalid repeat count"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)a", "invalid or unsupported Perl syntax"),
        ("a**", "invalid nested repetition operator"),
        ("*", "missing argument to repetition operator"),
        ("(", "missing closing"),
        (")", "unexpected"),
        ("[b-a]", "invalid character class range"),
    ],
)
def test_a_pattern_that_is_wrong_or_too_large_is_refused(pattern: str, why: str) -> None:
    """The error says why."""
    with pytest.raises(Re2Error, match=re.escape(why)):
        Re2Pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("b", "a\nbc", True),
        ("^b", "a\nbc", False),
        ("a.c", "a\nc", False),
        ("a|b$", "xax", True),
        (r"^[\u4e00-\u9fa5]+$", "\u4e2d\u6587", True),
        (r"^\\u00e9$", r"\u00e9", True),
        ("", "", True),
    ],
)
def test_a_pattern_of_json_schema_fits_a_part_of_a_text(pattern: str, text: str, fits: bool) -> None:
    """Codes of characters are ECMAScript's; a dot is no end of a line."""
    assert matches(json_schema_pattern(pattern), text)[0] is fits


@pytest.mark.parametrize("pattern", ["a)(b", "a)|(?:", "(?!a)", r"(a)\1"])
def test_a_pattern_of_json_schema_is_whole_and_one_of_re2(pattern: str) -> None:
    """Brackets must match within the pattern."""
    with pytest.raises(Re2Error, match="."):
        json_schema_pattern(pattern)

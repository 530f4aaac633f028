"""Excerpts of what others send: what fits is shown whole, and more is counted."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.excerpts import beginning, some_of


def test_what_fits_is_shown_whole() -> None:
    """A short text and a few names do not change."""
    assert beginning("x" * 300) == "x" * 300
    assert some_of([]) == ""
    assert some_of(["a", "b", "c", "d", "e"]) == "a, b, c, d, e"


def test_the_number_of_what_is_left_out_is_shown() -> None:
    """Of names the others, of a text all its letters."""
    assert beginning("x" * 301) == "x" * 300 + "... (301 characters)"
    assert some_of([*"abcdefg"]) == "a, b, c, d, e and 2 more"


@given(st.lists(st.text(max_size=2000), max_size=50))
def test_an_excerpt_is_short_whatever_the_names_are(names: list[str]) -> None:
    """A log line with it stays below 2 KB."""
    assert len(some_of(names)) < 2000

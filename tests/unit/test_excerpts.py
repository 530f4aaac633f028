"""Excerpts of what others send: what fits is shown whole, and more is counted."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.excerpts import Tally, beginning, some_of


def test_what_fits_is_shown_whole() -> None:
    """A short text and a few names do not change."""
    assert beginning("x" * 300) == "x" * 300
    assert some_of([]) == ""
    assert some_of(["a", "b", "c", "d", "e"]) == "a, b, c, d, e"


def test_the_number_of_what_is_left_out_is_shown() -> None:
    """Of names the others, of a text all its letters."""
    assert beginning("x" * 301) == "x" * 300 + "... (301 characters)"
    assert some_of([*"abcdefg"]) == "a, b, c, d, e and 2 more"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=3), st.text(max_size=3))))
def test_a_tally_has_a_line_for_each_reason_with_the_names_and_the_first_text(
    elements: list[tuple[str, str, str]],
) -> None:
    """As the elements grouped by their reasons."""
    tally: Tally[str] = Tally()
    for reason, name, text in elements:
        tally.add(reason, name, text)
    expected = []
    for reason in dict.fromkeys(reason for reason, _, _ in elements):
        mine = [(name, text) for other, name, text in elements if other == reason]
        expected.append((reason, some_of([name for name, _ in mine]), mine[0][1]))
    assert list(tally.lines()) == expected


@given(st.lists(st.text(max_size=2000), max_size=50))
def test_an_excerpt_is_short_whatever_the_names_are(names: list[str]) -> None:
    """A log line with it stays below 2 KB."""
    assert len(some_of(names)) < 2000

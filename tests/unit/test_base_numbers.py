"""Whole numbers from outside are read strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.numbers import LARGEST_INT64, whole_number


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

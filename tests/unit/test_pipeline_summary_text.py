"""What a summary says to people."""

from barnabas.pipelines.progress.summary_text import wrong_lines


def test_each_kind_of_bad_rows_has_its_count_and_an_example() -> None:
    """Sources first if there are several; a class with kinds has its examples there;
    tables of topics last."""
    run = {
        "sources": {"a": {"rows": 2000, "bad_rows": 3}, "b": {"rows": 5, "bad_rows": 0}},
        "bad": {"MALFORMED": 2, "MALFORMED, quotes": 2, "column n": 1},
        "bad_example": "x",
        "bad_examples": {"MALFORMED": "first", "MALFORMED, quotes": "first", "column n": "second"},
        "expectations": {"small": 4},
        "tables": {
            "t": {"rows": 9, "bad_rows": 1, "example": "third"},
            "u": {"rows": 9, "bad_rows": 0, "example": None},
        },
        "quarantined_rows": 0,
    }
    assert list(wrong_lines(run)) == [
        "a: 3 of 2,000 rows are bad",
        "MALFORMED: 2",
        "MALFORMED, quotes: 2, for example: first",
        "column n: 1, for example: second",
        "small: 4",
        "1 of the 9 values of the table t do not fit and are left out; for example: third",
    ]
    assert list(wrong_lines({})) == []

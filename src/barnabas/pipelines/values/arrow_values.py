"""Values of Arrow columns as Python's, for outputs that take rows one by one."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.values.texts import NOT_UTF8, TIME_OUT_OF_RANGE, text_of_bytes

__all__ = [
    "ValueOutOfRangeError",
    "require_texts",
    "row_dicts",
    "row_tuples",
    "shown_rows",
    "shown_values",
    "values_of",
]

_ROWS = 10_000
_SHOWN = 100
"""Characters of a wrong text that an error shows."""


class ValueOutOfRangeError(BarnabasError):
    """A column has a value that Python cannot hold, and so neither can the output."""


def values_of(name: str, column: pa.Array) -> list[Any]:
    """The values of a column; maps are dictionaries.

    Raises `ValueOutOfRangeError` that names the column."""
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except UnicodeDecodeError as error:
        raise ValueOutOfRangeError(_not_text(name, column)) from error
    except (OverflowError, ValueError) as error:  # Python's times end where Spark's do not
        raise ValueOutOfRangeError(
            f"column {name} has a time {TIME_OUT_OF_RANGE}; leave such rows out with `where`, or correct them"
        ) from error
    return values


def require_texts(rows: pa.Table) -> None:
    """Raise `ValueOutOfRangeError` if a text is not UTF-8: some outputs would take it, and
    readers make another one of it."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            raise ValueOutOfRangeError(_not_text(name, column)) from error


def _not_text(name: str, column: pa.Array | pa.ChunkedArray) -> str:
    """What to say of a column with such a text, which is shown if it is the value
    itself and no part of one."""
    for each in column if pa.types.is_string(column.type) else ():
        data = each.as_buffer().to_pybytes() if each.is_valid else b""
        shown = data.decode(errors="backslashreplace")
        if shown.encode() != data:
            printable = "".join(letter if letter.isprintable() else "\ufffd" for letter in shown[:_SHOWN])
            return f"column {name} has the text {printable}{NOT_UTF8}"
    return f"column {name} has a text{NOT_UTF8}"


def row_tuples(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows, each as a tuple. Raises `ValueOutOfRangeError`."""
    for batch in rows.to_batches(max_chunksize=_ROWS):
        columns = [values_of(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        yield from zip(*columns, strict=True)


def row_dicts(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows, each as a dictionary. Raises `ValueOutOfRangeError`."""
    names = rows.column_names
    for batch in rows.to_batches(max_chunksize=_ROWS):
        columns = [values_of(name, column) for name, column in zip(names, batch.columns, strict=True)]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def shown_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values to be looked at.

    One that Python cannot hold is a text, so that it does not hide the others."""
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (ValueError, OverflowError, pa.ArrowException):
        return [_shown(each) for each in column]


def shown_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows to be looked at, each as a dictionary."""
    columns = [shown_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _shown(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts="lossy")
    except UnicodeDecodeError:
        if pa.types.is_nested(scalar.type):
            return "a text in it is not UTF-8"
        return text_of_bytes(scalar.as_buffer().to_pybytes())
    except (ValueError, OverflowError, pa.ArrowException):
        if pa.types.is_temporal(scalar.type):
            return f"{scalar.cast(pa.int64()).as_py()} {scalar.type}"
        return str(scalar)

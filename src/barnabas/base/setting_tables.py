"""Tables of properties as text, a property a line, in the columns of Kafka's documentation.

A line is: name, type, valid values, a column that the table's reader defines, default,
documentation. What is indented continues the line before. Valid values are written as Kafka
writes them:

    -               any
    [1,...]         at least 1
    [0,...,1]       from 0 to 1
    [compact,delete]  one of these words, or for a list some of them
    NAME            a check that the table's reader has under this name

A default of ``-`` is null, ``''`` is the empty text, and ``required`` means that
there is no default.

In Kafka: `ConfigDef`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from barnabas.base.settings import Kind, Setting, ValueCheck, at_least, between, one_of

__all__ = ["Row", "read_table"]


class Row(NamedTuple):
    """One line of a table."""

    setting: Setting
    column: str
    """What the table's own column says."""


_DEFAULTS = {"-": None, "''": "", "required": None}


def read_table(
    text: str,
    checks: Mapping[str, ValueCheck] | None = None,
    check_of: Callable[[Setting], ValueCheck] | None = None,
) -> Iterator[Row]:
    """The properties of a table.

    ``checks`` are those that a line may name. ``check_of`` gives the check of each property, where
    the table has one rule for all.
    """
    for line in text.strip().replace("\n    ", " ").splitlines():
        name, kind, valid, column, default, doc = line.split(None, 5)
        setting = Setting(
            name,
            Kind[kind.upper()],
            _DEFAULTS.get(default, default),
            doc,
            _check(valid, checks or {}),
            required=default == "required",
        )
        yield Row(setting if check_of is None else replace(setting, check=check_of(setting)), column)


def _check(valid: str, checks: Mapping[str, ValueCheck]) -> ValueCheck | None:
    if valid == "-":
        return None
    if not valid.startswith("["):
        return checks[valid]
    values = valid[1:-1].split(",")
    if "..." not in values:
        return one_of(*values)
    if values[-1] == "...":
        return at_least(_number(values[0]))
    return between(_number(values[0]), _number(values[-1]))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)

"""Tables of properties as text, one line each, for the many of which there is little to say.

A line is: name, type, who may change it while the broker runs (KIP-226), default, documentation. A ``-`` in the third
column means read-only, in the fourth null; ``''`` is the empty default.

In Kafka: `ConfigDef`.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from barnabas.base.settings import Kind, Setting, ValueCheck

__all__ = ["Row", "UpdateMode", "read_table"]


class UpdateMode(Enum):
    """Whether a property may change while the broker runs, and for which brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Row(NamedTuple):
    """One line of a table."""

    setting: Setting
    mode: UpdateMode


_MODES = {"-": UpdateMode.READ_ONLY, "broker": UpdateMode.PER_BROKER, "cluster": UpdateMode.CLUSTER_WIDE}
_DEFAULTS = {"-": None, "''": ""}


def read_table(text: str, check: Callable[[Setting], ValueCheck | None]) -> Iterator[Row]:
    """The properties of a table; ``check`` gives what the values of each must satisfy."""
    for line in text.strip().splitlines():
        name, kind, mode, default, doc = line.split(None, 4)
        setting = Setting(name, Kind[kind.upper()], _DEFAULTS.get(default, default), doc)
        yield Row(Setting(name, setting.kind, setting.default, doc, check(setting)), _MODES[mode])

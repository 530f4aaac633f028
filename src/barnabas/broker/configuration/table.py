"""The tables of broker properties, whose own column says who may change one while
the broker runs (KIP-226).

The column is ``-`` for read-only, ``broker`` or ``cluster``. The other columns are those of
`barnabas.base.setting_tables`.

In Kafka: `ConfigDef`, `DynamicBrokerConfig`.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from barnabas.base import setting_tables
from barnabas.base.settings import Setting, ValueCheck

__all__ = ["BrokerRow", "UpdateMode", "read_broker_table"]


class UpdateMode(Enum):
    """Whether a property may change while the broker runs, and for which brokers."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class BrokerRow(NamedTuple):
    """One line of a table."""

    setting: Setting
    mode: UpdateMode


_MODES = {"-": UpdateMode.READ_ONLY, "broker": UpdateMode.PER_BROKER, "cluster": UpdateMode.CLUSTER_WIDE}


def read_broker_table(
    text: str,
    checks: Mapping[str, ValueCheck] | None = None,
    check_of: Callable[[Setting], ValueCheck] | None = None,
) -> Iterator[BrokerRow]:
    """The properties of a table, with the arguments of
    `barnabas.base.setting_tables.read_table`."""
    for row in setting_tables.read_table(text, checks, check_of):
        yield BrokerRow(row.setting, _MODES[row.column])

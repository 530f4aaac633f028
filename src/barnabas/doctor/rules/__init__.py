"""The rules, a module for each subject. A rule is a pure function of parts of the evidence.

A new rule is a function with the decorator `rule`; a new module is named in ``_MODULES`` here.

In Kafka: nothing; each rule's module names the property or the tool that it is about.
"""

from barnabas.doctor.rules import (
    brokers,
    clients,
    clocks,
    coordination,
    coordination_servers,
    groups,
    leaders,
    records,
    replication,
    security,
    settings,
    storage,
)
from barnabas.doctor.rules.registration import RULES, DoctorRule

__all__ = ["ALL_RULES"]

_MODULES = (
    *(replication, leaders, brokers, storage, records),
    *(groups, clients, security, clocks, settings, coordination, coordination_servers),
)

ALL_RULES: tuple[DoctorRule, ...] = tuple(
    each for module in _MODULES for each in RULES.values() if each.check.__module__ == module.__name__
)
"""In the order of the modules, and in these of the text."""

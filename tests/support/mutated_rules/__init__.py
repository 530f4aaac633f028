"""Rules that a mutant takes out of the code, each with the unit test that must notice it: see
``tests/rule_mutants.py``."""

from typing import NamedTuple

__all__ = ["Rule", "all_rules"]


class Rule(NamedTuple):
    """What must hold, and how it is broken."""

    text: str
    """What must hold, in a few words."""
    module: str
    """The file, below ``src/barnabas``."""
    old: str
    """What stands there once, and holds the rule."""
    new: str
    """What stands in its place without the rule."""
    test: str
    """The test that must fail then: ``test_module.py::test_name``, below ``tests/unit``."""


def all_rules() -> list[Rule]:
    """The rules of all tables."""
    from support.mutated_rules import (
        access,
        administration_rights,
        authentication,
        authorizer,
        broker_limits,
        coordination_limits,
        data_rights,
        epochs,
        registry,
        tls,
        transaction_coordinator,
        transactions,
    )

    tables = (
        access.RULES,
        administration_rights.RULES,
        authentication.RULES,
        authorizer.RULES,
        tls.RULES,
        coordination_limits.RULES,
        data_rights.RULES,
        broker_limits.RULES,
        epochs.RULES,
        registry.RULES,
        transactions.RULES,
        transaction_coordinator.RULES,
    )
    return [rule for table in tables for rule in table]

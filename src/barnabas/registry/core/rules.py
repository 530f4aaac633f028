"""The rules of a schema: stored, merged, checked in form, and answered; nothing executes them."""

from dataclasses import dataclass

__all__ = ["RuleSet"]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a schema for migration, for the domain and for encoding."""

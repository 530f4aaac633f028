"""The commands that mend findings of several rules.

In Kafka: ``kafka-configs --alter``, ``kafka-reassign-partitions --execute``.
"""

from collections.abc import Iterator, Mapping

from barnabas.doctor.finding import MendingCommand

__all__ = ["PLAN_FILE", "change_topics", "reset_topics", "run_plan"]

PLAN_FILE = "plan.json"
_SHOWN = 3


def change_topics(changes: Mapping[str, str]) -> tuple[MendingCommand | str, ...]:
    """Set a property of each topic, ``NAME=VALUE`` by the topic's name."""
    return tuple(_each_topic(changes, "--add-config"))


def reset_topics(changes: Mapping[str, str]) -> tuple[MendingCommand | str, ...]:
    """Take a property of each topic back to the default."""
    return tuple(_each_topic(changes, "--delete-config"))


def _each_topic(changes: Mapping[str, str], option: str) -> Iterator[MendingCommand | str]:
    for name, change in list(changes.items())[:_SHOWN]:
        yield MendingCommand.of("configs", "--alter", "--entity-type", "topics", "--entity-name", name, option, change)
    if len(changes) > _SHOWN:
        yield f"Likewise for {len(changes) - _SHOWN} more; --output json names them."


def run_plan(rule: str) -> tuple[MendingCommand | str, ...]:
    """Write the plan of a rule's moves, and run it."""
    return (
        MendingCommand.of("doctor", "--only", rule, "--plan", PLAN_FILE),
        MendingCommand.of("reassign-partitions", "--reassignment-json-file", PLAN_FILE, "--execute"),
    )

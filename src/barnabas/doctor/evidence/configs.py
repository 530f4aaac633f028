"""Configurations of topics and brokers.

In Kafka: `DescribeConfigsResult`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.admin.configurations import ConfigEntry
from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["JUDGED_SETTINGS", "BrokerConfigsPart", "TopicConfigsPart", "setting_number"]

JUDGED_SETTINGS = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
)
"""The settings of topics that rules judge: all of a thousand topics would take longer to read
than the whole answer may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigsPart(EvidencePart):
    """All properties of each broker that answered, by id and name, with their synonyms."""

    entries: Mapping[int, Mapping[str, ConfigEntry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigsPart(EvidencePart):
    """The effective properties of each topic by its name and theirs: `JUDGED_SETTINGS`."""

    entries: Mapping[str, Mapping[str, ConfigEntry]]


def setting_number(entries: Mapping[str, ConfigEntry], name: str) -> int | None:
    """The value of a property that is a number; None where the broker does not have it."""
    entry = entries.get(name)
    if entry is None or entry.value is None:
        return None
    try:
        return int(entry.value)
    except ValueError:
        return None

"""Requests in versions of the protocol that Kafka 4.0 no longer takes.

In Kafka: the MBean ``kafka.network:type=RequestMetrics,name=DeprecatedRequestsPerSec`` (KIP-896).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["DeprecatedRequest", "DeprecatedRequestsPart"]


@dataclass(frozen=True, slots=True)
class DeprecatedRequest:
    """An API in one version, and the software that asks (KIP-511), "unknown" where it does not
    say."""

    request: str
    version: int
    software: str
    software_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeprecatedRequestsPart(EvidencePart):
    """How many came since each broker's start."""

    counts: Mapping[int, Mapping[DeprecatedRequest, int]]

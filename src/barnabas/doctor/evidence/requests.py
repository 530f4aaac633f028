"""Requests that brokers refused for their version.

In Kafka: nothing; a broker closes the connection and logs an InvalidRequestException. Its MBean
``name=DeprecatedRequestsPerSec`` (KIP-896) counts versions that are still served, which brokers of
Barnabas do not serve at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["UnservedRequest", "UnservedRequestsPart"]


@dataclass(frozen=True, slots=True)
class UnservedRequest:
    """A request by its name in Kafka, and its version."""

    request: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedRequestsPart(EvidencePart):
    """How many came since each broker's start."""

    counts: Mapping[int, Mapping[UnservedRequest, int]]

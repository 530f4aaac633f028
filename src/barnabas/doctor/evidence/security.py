"""The certificates that servers show, and the access control lists.

In Kafka: the key stores of listeners, and `DescribeAclsResult`.
"""

from dataclasses import dataclass

from barnabas.client.admin.acls import Acl
from barnabas.doctor.evidence.part import EvidencePart

__all__ = ["AclsPart", "CertificateView", "CertificatesPart", "ShownChain"]


@dataclass(frozen=True, slots=True)
class CertificateView:
    """One certificate: its subject, and when it begins and ends in ms since the epoch."""

    subject: str
    not_before_ms: int
    not_after_ms: int


@dataclass(frozen=True, slots=True)
class ShownChain:
    """What a server showed in its TLS handshake, its own certificate first."""

    server: str
    """``broker 1`` or ``coordination server``."""
    address: str
    listener: str
    chain: tuple[CertificateView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatesPart(EvidencePart):
    """The chains of all TLS listeners that were reached; none where no listener has TLS, or
    where gaps say why."""

    chains: tuple[ShownChain, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsPart(EvidencePart):
    """All entries."""

    entries: tuple[Acl, ...]

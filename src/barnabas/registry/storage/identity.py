"""Who an instance is, and who leads: what the members of the registry's group send each other.

Both are JSON, as Confluent's instances write them, so that a group may have members of both kinds.
An instance says where it is reached, whether it may lead, and whether it leads now; the assignment
says the same to all members: which of them leads.

The eligible member with the smallest URL leads. One that leads already stays, unless two say so.

In Confluent's registry: `SchemaRegistryIdentity`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from barnabas.base.json_text import parse_json

__all__ = ["DUPLICATE_URLS", "NO_ERROR", "LeaderAssignment", "RegistryIdentity", "assign"]

NO_ERROR, DUPLICATE_URLS = 0, 1
"""Errors of an assignment."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class RegistryIdentity:
    """An instance: where others and clients reach it."""

    host: str
    port: int
    is_eligible: bool = True
    """Whether it may lead."""
    scheme: str = "http"
    is_leader: bool = False
    """Whether it leads, as far as it knows."""

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def is_same(self, other: "RegistryIdentity") -> bool:
        """Whether both are the same instance, leader or not."""
        return replace(self, is_leader=False) == replace(other, is_leader=False)

    def encode(self) -> bytes:
        return json.dumps(self._document(), separators=(",", ":")).encode()

    def _document(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
            "leader": self.is_leader,
        }

    @classmethod
    def decode(cls, data: bytes) -> "RegistryIdentity":
        """Raises `ValueError` for what is no identity; unknown fields are left out."""
        return cls._of(parse_json(data))

    @classmethod
    def _of(cls, found: object) -> "RegistryIdentity":
        match found:
            case {"host": str(host), "port": int(port), "master_eligibility": bool(is_eligible), **more}:
                scheme, is_leader = more.get("scheme") or "http", more.get("leader") is True
                if isinstance(scheme, str) and 0 < port < 65536 and host:
                    return cls(host, port, is_eligible, scheme, is_leader)
        raise ValueError(f"{found!r} is no identity of a schema registry")


@dataclass(frozen=True, slots=True)
class LeaderAssignment:
    """Which member leads, for all members the same; None where none may."""

    error: int = NO_ERROR
    leader_member: str | None = None
    leader: RegistryIdentity | None = None

    def encode(self) -> bytes:
        document: dict[str, Any] = {"version": _VERSION, "error": self.error}
        if self.leader_member is not None and self.leader is not None:
            document |= {"master": self.leader_member, "master_identity": self.leader._document()}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> "LeaderAssignment":
        """Raises `ValueError` for what is no assignment."""
        match parse_json(data):
            case {"error": int(error), **more}:
                leader = more.get("master_identity")
                member = more.get("master")
                if leader is None or not isinstance(member, str):
                    return cls(error)
                return cls(error, member, RegistryIdentity._of(leader))
        raise ValueError(f"{data!r} is no assignment of a schema registry")


def assign(members: Mapping[str, bytes]) -> LeaderAssignment:
    """Who leads, decided from what each member says of itself, by member id.

    A member that is not understood never leads."""
    identities: dict[str, RegistryIdentity] = {}
    for member_id, metadata in members.items():
        try:
            identities[member_id] = RegistryIdentity.decode(metadata)
        except ValueError:
            continue
    error = DUPLICATE_URLS if len({each.url for each in identities.values()}) < len(identities) else NO_ERROR
    eligible = sorted((each.url, member_id) for member_id, each in identities.items() if each.is_eligible)
    leading = [member_id for _, member_id in eligible if identities[member_id].is_leader]
    if not eligible:
        return LeaderAssignment(error)
    leader_member = leading[0] if len(leading) == 1 else eligible[0][1]
    return LeaderAssignment(error, leader_member, identities[leader_member])

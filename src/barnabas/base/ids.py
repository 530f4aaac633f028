"""Identifiers that pass between layers."""

import base64
import binascii
from typing import NamedTuple, NewType

from barnabas.base.errors import ConfigError

__all__ = ["NO_BROKER", "NO_LEADER_EPOCH", "ZERO_UUID", "TopicPartition", "Uuid", "uuid_from_text", "uuid_text"]

Uuid = NewType("Uuid", bytes)
"""Sixteen raw bytes, as on the wire; see `uuid_text` for the form that people see."""

ZERO_UUID = Uuid(bytes(16))
"""No id: what Kafka sends where a topic has none."""

NO_BROKER = -1
"""The broker id of a partition without a leader, and of a cluster without a controller."""

NO_LEADER_EPOCH = -1
"""The leader epoch of a partition that has had no leader, and of a client that does not know it."""


class TopicPartition(NamedTuple):
    """A partition's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Kafka's name for the partition's folder: ``topic-0``."""
        return f"{self.topic}-{self.partition}"


def uuid_text(value: bytes) -> str:
    """URL-safe base64 without padding, 22 characters: how Kafka prints ids (KIP-516)."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The reverse of `uuid_text`; raises `ConfigError` for anything else."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error) as error:
        raise ConfigError(f"{text!r} is not an id: 22 characters of URL-safe base64 are expected") from error
    if len(raw) != 16:
        raise ConfigError(f"{text!r} is not an id: it holds {len(raw)} bytes, 16 are expected")
    return Uuid(raw)

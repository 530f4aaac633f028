"""The SASL mechanisms of Kafka's clients and brokers: their names, SCRAM's hashes and numbers,
and JAAS's login modules.

In Kafka: `ScramMechanism`, `PlainLoginModule`, `ScramLoginModule`.
"""

from typing import NamedTuple

__all__ = [
    "LOGIN_MODULES",
    "PLAIN",
    "SASL_MECHANISMS",
    "SCRAM_MECHANISMS",
    "SCRAM_MECHANISMS_BY_NUMBER",
    "ScramMechanism",
]


class ScramMechanism(NamedTuple):
    """What distinguishes a mechanism of SCRAM from the others."""

    hash: str
    """The name that `hashlib` has for it."""
    number: int
    """In the protocol (KIP-554)."""


PLAIN = "PLAIN"
SCRAM_MECHANISMS = {"SCRAM-SHA-256": ScramMechanism("sha256", 1), "SCRAM-SHA-512": ScramMechanism("sha512", 2)}
SCRAM_MECHANISMS_BY_NUMBER = {mechanism.number: name for name, mechanism in SCRAM_MECHANISMS.items()}
SASL_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
LOGIN_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, "org.apache.kafka.common.security.scram.ScramLoginModule"),
}
"""By mechanism."""

"""``inter.broker.protocol.version``, and what depends on it here: whether features
can be finalized.

Brokers speak the protocol of Kafka 3.9 among themselves, whatever the property says. But with a
value lower than 2.7 there are no features (KIP-584), and one lower than 3.3 has ``/feature`` in its
older format, so that brokers of such a release read it.

In Kafka: `MetadataVersion`.
"""

from typing import NamedTuple

__all__ = ["CURRENT", "FeatureVersioning", "feature_versioning", "has_prefixed_acls", "wrong_protocol_version"]

_STEPS = {
    "0.8.0": 1,
    "0.8.1": 1,
    "0.8.2": 1,
    "0.9.0": 1,
    "0.10.0": 2,
    "0.10.1": 3,
    "0.10.2": 1,
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
    "2.4": 2,
    "2.5": 1,
    "2.6": 1,
    "2.7": 3,
    "2.8": 2,
    "3.0": 2,
    "3.1": 1,
    "3.2": 1,
    "3.3": 4,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
}
"""How many versions each release has: ``3.3`` has ``3.3-IV0`` to ``3.3-IV3``."""
_WITHOUT_STEPS = frozenset(("0.8.0", "0.8.1", "0.8.2", "0.9.0"))
_WITH_FEATURES = (2, 7)
_WITHOUT_MIN_LEVELS = (3, 3)


class FeatureVersioning(NamedTuple):
    """Whether features can be finalized, and the version of the format of ``/feature``."""

    is_enabled: bool
    znode_version: int


CURRENT = FeatureVersioning(True, 2)
"""The level of the default, 3.9-IV0."""


def feature_versioning(protocol_version: str) -> FeatureVersioning:
    """What a checked inter.broker.protocol.version means for features."""
    release = _release(protocol_version).partition("-")[0]
    numbers = tuple(int(number) for number in release.split("."))
    return FeatureVersioning(numbers >= _WITH_FEATURES, 2 if numbers >= _WITHOUT_MIN_LEVELS else 1)


def has_prefixed_acls(protocol_version: str) -> bool:
    """Whether all brokers know access control lists of prefixes (KIP-290), from 2.0-IV1 on."""
    release = _release(protocol_version)
    return release != "2.0-IV0" and tuple(map(int, release.partition("-")[0].split("."))) >= (2, 0)


def wrong_protocol_version(text: str) -> str | None:
    """What is wrong with a value; None for a version that Kafka 3.9 knows."""
    release, dash, step = _release(text).partition("-")
    steps = _STEPS.get(release)
    is_known = steps is not None and (
        not dash or (release not in _WITHOUT_STEPS and step in [f"IV{number}" for number in range(steps)])
    )
    return None if is_known else f"Version `{text}` is not a valid version"


def _release(text: str) -> str:
    """The text without the number of a bug fix release: 3.9.1 is 3.9."""
    parts = text.split(".")
    kept = 3 if text.startswith("0.") else 2
    return text if len(parts) <= kept else ".".join(parts[:kept])

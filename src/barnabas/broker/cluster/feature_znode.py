"""The znode ``/feature``: which features of the cluster are finalized, and at which
level (KIP-584).

Versions 1 and 2 of its contents, byte for byte as Apache Kafka 3.9 writes them::

    {"features":{"NAME":{"max_version_level":2}},"version":2,"status":1}

Version 1 also has ``min_version_level``, with the same number. A status of 0 means that features
are not finalized at all, because ``inter.broker.protocol.version`` is lower than 2.7. Levels begin
at 1: a feature at level 0 is not listed. The znode's own version is the epoch of the features.

In Kafka: `FeatureZNode`.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.broker.cluster.znodes import FEATURE, ZnodeFormatError

__all__ = ["FeatureZnode", "decode_feature", "encode_feature"]

_MIN_LEVEL, _MAX_LEVEL = "min_version_level", "max_version_level"
_LARGEST_LEVEL = 32767
_WITH_MIN_LEVEL = 1


class FeatureZnode(NamedTuple):
    """The contents. ``version`` is that of the format, 1 or 2."""

    version: int
    is_enabled: bool
    levels: Mapping[str, int]


def encode_feature(feature: FeatureZnode) -> bytes:
    """The bytes of the contents."""
    features: dict[str, dict[str, int]] = {}
    for name, level in feature.levels.items():
        features[name] = {_MAX_LEVEL: level}
        if feature.version == _WITH_MIN_LEVEL:
            features[name][_MIN_LEVEL] = level
    value = {"features": features, "version": feature.version, "status": int(feature.is_enabled)}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_feature(data: bytes | None) -> FeatureZnode:
    """The contents of the bytes.

    Raises `ZnodeFormatError` for what Apache's brokers do not read either."""
    try:
        value = json.loads(data or b"null")
    except (ValueError, RecursionError):
        raise _wrong("is not JSON", data) from None
    if not isinstance(value, dict):
        raise _wrong("is not a JSON object", data)
    version = _number("version", value.get("version"), data, 1, 2)
    status = _number("status", value.get("status"), data, 0, 1)
    features = value.get("features")
    if not isinstance(features, dict):
        raise _wrong("has no features", data)
    return FeatureZnode(version, status == 1, {name: _level(version, each, data) for name, each in features.items()})


def _level(version: int, levels: Any, data: bytes | None) -> int:
    if not isinstance(levels, dict):
        raise _wrong("has a feature without levels", data)
    level = _number(_MAX_LEVEL, levels.get(_MAX_LEVEL), data, 1, _LARGEST_LEVEL)
    if version == _WITH_MIN_LEVEL:
        _number(_MIN_LEVEL, levels.get(_MIN_LEVEL), data, 1, level)
    return level


def _number(name: str, value: Any, data: bytes | None, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise _wrong(f"has the {name} {value!r}", data)
    return value


def _wrong(what: str, data: bytes | None) -> ZnodeFormatError:
    return ZnodeFormatError(f"{FEATURE} {what}: {bytes(data or b'')[:200]!r}")

"""The features that this broker supports, and the levels at which the cluster has finalized them.

A feature changes what brokers do together, so all must support its level before it is finalized
(KIP-584). ``/feature`` says which are; its version is the epoch, which only grows while the znode
exists. ApiVersions passes both on to clients, which act upon ``transaction.version``.

=====================  ==========================================================================
``transaction.version``
=====================  ==========================================================================
0 (not finalized)      transactions of KIP-98; records of ``__transaction_state`` in format 0
1                      the same for clients; records of ``__transaction_state`` in format 1
2                      each transaction of a client that knows it has an epoch of its own, and
                       brokers add partitions themselves (KIP-890)
=====================  ==========================================================================

Brokers of Apache Kafka 3.9 in ZooKeeper mode support no feature at all. One that finds a feature in
``/feature`` stops before it registers.

In Kafka: `BrokerFeatures`, and the features of `ZkMetadataCache`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.numbers import whole_number
from barnabas.broker.cluster.feature_znode import FeatureZnode

__all__ = [
    "NO_EPOCH",
    "SUPPORTED",
    "TRANSACTION_V2",
    "TRANSACTION_VERSION",
    "FeatureCache",
    "IncompatibleFeaturesError",
    "LevelRange",
    "checked_levels",
    "incompatible_features",
    "levels_text",
    "parse_levels",
    "registered_features",
    "wrong_levels",
]

TRANSACTION_VERSION = "transaction.version"
TRANSACTION_V2 = 2
"""From this level on each transaction has an epoch of its own, and brokers add the partitions to it
(KIP-890)."""
NO_EPOCH = -1


class LevelRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    lowest: int
    highest: int


SUPPORTED: Mapping[str, LevelRange] = {TRANSACTION_VERSION: LevelRange(0, TRANSACTION_V2)}
_LOWEST_REGISTERED = 1
_MAX_LEVEL = 32_767


def parse_levels(texts: Iterable[str]) -> dict[str, int]:
    """Levels by feature, from texts such as ``transaction.version=2``.

    Raises `ConfigError` in the words of Kafka's tools."""
    levels: dict[str, int] = {}
    for text in texts:
        name, equals, level = (part.strip() for part in text.partition("="))
        if not equals:
            raise ConfigError(f"Can't parse feature=level string {text}: equals sign not found.")
        try:
            number = whole_number(level)
        except ValueError:
            number = _MAX_LEVEL + 1
        if not -_MAX_LEVEL <= number <= _MAX_LEVEL:
            raise ConfigError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
        if name in levels:
            raise ConfigError(f"Feature {name} was specified more than once.")
        levels[name] = number
    return levels


def levels_text(levels: Mapping[str, int]) -> str:
    """The value of ``new.cluster.features`` for these levels."""
    return ",".join(f"{name}={level}" for name, level in levels.items())


def checked_levels(levels: Mapping[str, int]) -> str:
    """`levels_text` of levels that are supported; raises `BarnabasError` for others."""
    text = levels_text(levels)
    if wrong := wrong_levels(text.split(",")):
        raise BarnabasError(f"features: {wrong}")
    return text


def wrong_levels(texts: Iterable[str]) -> str | None:
    """The error in the value of ``new.cluster.features``; None if brokers support the levels."""
    try:
        levels = parse_levels(texts)
    except ConfigError as error:
        return str(error)
    for name, level in levels.items():
        supported = SUPPORTED.get(name)
        if supported is None:
            return f"Unsupported feature: {name}. Supported features are: {', '.join(SUPPORTED)}"
        if not supported.lowest <= level <= supported.highest:
            return f"{name} has the levels {supported.lowest} to {supported.highest}, not {level}"
    return None


class IncompatibleFeaturesError(BarnabasError):
    """The cluster has finalized what this broker does not support."""


def registered_features() -> dict[str, dict[str, int]]:
    """The supported features as this broker's registration lists them.

    Levels begin at 1 there: controllers of older releases of Apache Kafka take no other range, and
    level 0 means that a feature is not finalized, which needs no support.
    """
    return {
        name: {"min_version": max(levels.lowest, _LOWEST_REGISTERED), "max_version": levels.highest}
        for name, levels in SUPPORTED.items()
    }


def incompatible_features(registered: Mapping[str, Any], finalized: Mapping[str, int]) -> list[str]:
    """The finalized features that a broker does not support, by the features in its
    registration."""
    return [name for name, level in finalized.items() if not _supports(registered.get(name), level)]


def _supports(levels: Any, level: int) -> bool:
    if not isinstance(levels, Mapping):
        return False
    lowest, highest = levels.get("min_version"), levels.get("max_version")
    return isinstance(lowest, int) and isinstance(highest, int) and lowest <= level <= highest


class FeatureCache:
    """The finalized features, as this broker knows them."""

    def __init__(self) -> None:
        self.levels: Mapping[str, int] = {}
        """By the names of the features."""
        self.epoch = NO_EPOCH
        """The version of ``/feature``; `NO_EPOCH` while nothing can be finalized."""

    def level(self, name: str) -> int:
        """The finalized level of a feature; 0 for one that is not finalized."""
        return self.levels.get(name, 0)

    def learn(self, feature: FeatureZnode | None, epoch: int) -> None:
        """Take the contents of ``/feature``, None without such a znode or with one
        that is unreadable.

        Raises `IncompatibleFeaturesError`, and stays as it was, if the broker cannot be a member of
        a cluster with these features.
        """
        if feature is None or not feature.is_enabled:
            self.levels, self.epoch = {}, NO_EPOCH
            return
        unsupported = incompatible_features(registered_features(), feature.levels)
        if unsupported:
            asked = ", ".join(f"{name}={feature.levels[name]}" for name in unsupported)
            raise IncompatibleFeaturesError(
                f"The cluster has finalized features that this broker does not support: {asked}. "
                "Run a newer version, or lower them with `barnabas features downgrade` first"
            )
        self.levels, self.epoch = dict(feature.levels), epoch

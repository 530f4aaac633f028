"""The controller sets up ``/feature``, and finalizes features that clients ask for (KIP-584).

In Kafka: `KafkaController.maybeSetupFeatureVersioning` and `processFeatureUpdates`.
"""

import logging
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.broker.cluster.feature_znode import FeatureZnode, decode_feature, encode_feature
from barnabas.broker.cluster.steps import Create, Read, SetData, Steps, Write, WriteResult, Written, Znode
from barnabas.broker.cluster.znodes import FEATURE, ZnodeFormatError
from barnabas.broker.controller.broker_change import read_brokers
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.broker.metadata.features import NO_EPOCH, SUPPORTED, incompatible_features
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["FeatureUpdate", "UpgradeType", "process_feature_updates", "set_up_feature_versioning"]

logger = logging.getLogger(__name__)

_ABSENT = -1


class UpgradeType(IntEnum):
    """What an update may do to a level."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A level that a client asks for.

    Below 1, with one of the downgrades, it removes the feature."""

    feature: str
    level: int
    upgrade_type: UpgradeType

    @property
    def is_deletion(self) -> bool:
        return self.level < 1 and self.upgrade_type is not UpgradeType.UPGRADE


def set_up_feature_versioning(context: ControllerContext) -> Steps[None]:
    """Bring ``/feature`` to what inter.broker.protocol.version asks for; finalized levels stay.

    With a version lower than 2.7 the znode is disabled and empty. Above, one that is missing is
    made with those of new.cluster.features, which is empty unless the cluster's owner sets it.
    """
    versioning = context.feature_versioning
    znodes: list[Znode | None] = yield Read([FEATURE])
    znode = znodes[0]
    try:
        existing = _decode(znode)
    except ZnodeFormatError as error:
        logger.error("No feature is finalized, and none can be: %s", error)
        context.features.learn(None, NO_EPOCH)
        return
    is_kept = versioning.is_enabled and existing is not None and existing.is_enabled
    levels = existing.levels if is_kept and existing is not None else {}
    if znode is None and versioning.is_enabled:
        levels = yield from _new_cluster_features(context)
    wanted = FeatureZnode(versioning.znode_version, versioning.is_enabled, levels)
    version = _ABSENT if znode is None else znode.version
    if wanted != existing:
        if existing is not None and not existing.is_enabled and existing.levels:
            logger.warning("%s is disabled and lists features: %s", FEATURE, dict(existing.levels))
        version = yield from _write(wanted, version)
    context.features.learn(wanted, version)


def _new_cluster_features(context: ControllerContext) -> Steps[Mapping[str, int]]:
    """The levels that a new cluster finalizes: those of new.cluster.features, if all registered
    brokers support them."""
    levels = {name: level for name, level in context.new_cluster_features.items() if level > 0}
    if not levels:
        return {}
    brokers = yield from read_brokers(context)
    if any(incompatible_features(info.features, levels) for info in brokers.values()):
        logger.warning("new.cluster.features is not finalized: registered brokers do not support it")
        return {}
    logger.info("Finalized features of the new cluster: %s", levels)
    return levels


def _decode(znode: Znode | None) -> FeatureZnode | None:
    """Raises `ZnodeFormatError`: a controller does not replace what it cannot read."""
    return None if znode is None else decode_feature(znode.data)


def _write(feature: FeatureZnode, version: int) -> Steps[int]:
    """Write the znode that still has ``version``; its new version. Raises `KeeperError`."""
    data = encode_feature(feature)
    op = Create(FEATURE, data) if version == _ABSENT else SetData(FEATURE, data, version)
    written: list[Written] = yield Write([op])
    if written[0].or_raise() is not WriteResult.DONE:
        raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, f"{FEATURE} has changed meanwhile")
    return written[0].version


def process_feature_updates(
    context: ControllerContext, _: RequestBatch, updates: Sequence[FeatureUpdate], *, validate_only: bool
) -> Steps[dict[str, KafkaError | None]]:
    """Finalize, lower or remove features; what is wrong with each update, by its feature.

    Valid updates are made together, whatever others are refused. Raises `KafkaError`
    INVALID_REQUEST where features are disabled. With ``validate_only`` nothing is written.
    """
    versioning = context.feature_versioning
    if not versioning.is_enabled:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Feature versioning system is disabled.")
    znodes: list[Znode | None] = yield Read([FEATURE])
    znode = znodes[0]
    try:
        existing = _decode(znode)
    except ZnodeFormatError as error:
        logger.error("No feature can be updated: %s", error)
        return {each.feature: KafkaError(ErrorCode.FEATURE_UPDATE_FAILED) for each in updates}
    before = existing.levels if existing is not None and existing.is_enabled else {}
    after = dict(before)
    answers: dict[str, KafkaError | None] = {}
    for update in updates:
        yield None
        reason = _refusal(context, update, before.get(update.feature))
        answers[update.feature] = None if reason is None else KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if reason is None:
            after.pop(update.feature, None)
            if not update.is_deletion:
                after[update.feature] = update.level
    if after == before or validate_only:
        return answers
    wanted = FeatureZnode(versioning.znode_version, True, after)
    try:
        version = yield from _write(wanted, _ABSENT if znode is None else znode.version)
    except (KeeperError, KafkaError) as error:
        logger.warning("Features could not be updated: %s", error)
        failure = KafkaError(ErrorCode.FEATURE_UPDATE_FAILED)
        return {name: failure if answer is None else answer for name, answer in answers.items()}
    logger.info("Finalized features: %s", dict(after))
    context.features.learn(wanted, version)
    return answers


def _refusal(context: ControllerContext, update: FeatureUpdate, existing: int | None) -> str | None:
    """Why an update is refused, in the words of Apache's brokers; None for one that is right."""
    if not update.feature:
        return "Feature name can not be empty."
    if update.upgrade_type is UpgradeType.UNKNOWN:
        return "Received unknown upgrade type."
    if update.is_deletion:
        return "Can not delete non-existing finalized feature." if existing is None else None
    if update.level < 1:
        return (
            f"Can not provide versionLevel: {update.level} less than 1 without setting the SAFE downgradeType "
            "in the request."
        )
    if existing is not None:
        reason = _wrong_direction(update, existing)
        if reason is not None:
            return reason
    return _unsupported(context, {update.feature: update.level})


def _wrong_direction(update: FeatureUpdate, existing: int) -> str | None:
    is_safe_downgrade = update.upgrade_type is UpgradeType.SAFE_DOWNGRADE
    if update.level == existing:
        verb = "downgrade" if is_safe_downgrade else "upgrade"
        return f"Can not {verb} a finalized feature from existing versionLevel:{existing} to the same value."
    if update.level < existing and not is_safe_downgrade:
        return (
            f"Can not downgrade finalized feature from existing versionLevel:{existing} to provided "
            f"versionLevel:{update.level} without setting the downgradeType to SAFE in the request."
        )
    if update.level > existing and update.upgrade_type is not UpgradeType.UPGRADE:
        return (
            f"When the downgradeType is set to SAFE in the request, the provided versionLevel:{update.level} "
            f"can not be greater than existing versionLevel:{existing}."
        )
    return None


def _unsupported(context: ControllerContext, levels: Mapping[str, int]) -> str | None:
    """Whether this broker, and every other one that is registered, supports a level."""
    ((feature, level),) = levels.items()
    supported = SUPPORTED.get(feature)
    if supported is None:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if not supported.lowest <= level <= supported.highest:
        # Apache's brokers say this of a level that is too high, too.
        return (
            f"Could not apply finalized feature update because the provided versionLevel:{level} is lower than the "
            f"supported minVersion:{supported.lowest}."
        )
    if any(incompatible_features(info.features, levels) for info in context.brokers.values()):
        return (
            "Could not apply finalized feature update because brokers were found to have incompatible versions "
            "for the feature."
        )
    return None

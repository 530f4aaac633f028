"""The request that finalizes a feature in a simulated cluster, and the level that is finalized.

In Kafka: `FeatureUpdate` and `UpdateFeaturesRequest`.
"""

from barnabas.broker.cluster.feature_znode import decode_feature
from barnabas.broker.cluster.znodes import FEATURE
from barnabas.broker.controller.features import UpgradeType
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.wire.kafka.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

__all__ = ["feature_update", "finalized_level"]


def feature_update(name: str, level: int, before: int) -> UpdateFeaturesRequest:
    """Raise a feature to a level, or lower it; level 0 removes it."""
    upgrade_type = UpgradeType.SAFE_DOWNGRADE if level < before else UpgradeType.UPGRADE
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    return UpdateFeaturesRequest(feature_updates=[update])


def finalized_level(view: ClusterView, name: str) -> int:
    """The level of a feature in the coordination service; 0 for one that is not finalized."""
    tree = view.tree()
    node = None if tree is None else tree.nodes.get(FEATURE)
    return 0 if node is None else decode_feature(bytes(node.data or b"")).levels.get(name, 0)

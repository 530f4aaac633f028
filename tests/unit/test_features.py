"""Features of the cluster (KIP-584): the znode, what may be finalized, and who may
be a member then."""

import json
from typing import Any

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.cluster.feature_znode import FeatureZnode, decode_feature, encode_feature
from barnabas.broker.cluster.znodes import BrokerInfo, Endpoint, ZnodeFormatError, broker_path, encode_broker
from barnabas.broker.configuration.definitions import DEFINITIONS
from barnabas.broker.configuration.protocol_version import FeatureVersioning, feature_versioning, wrong_protocol_version
from barnabas.broker.controller.broker_change import process_broker_change
from barnabas.broker.controller.features import (
    FeatureUpdate,
    UpgradeType,
    process_feature_updates,
    set_up_feature_versioning,
)
from barnabas.broker.metadata.features import (
    NO_EPOCH,
    SUPPORTED,
    TRANSACTION_VERSION,
    FeatureCache,
    IncompatibleFeaturesError,
    registered_features,
)
from barnabas.cli.main import main
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from support.controlled_cluster import ControlledCluster

HIGHEST = SUPPORTED[TRANSACTION_VERSION].highest
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def register(cluster: ControlledCluster, broker: int, features: dict[str, Any] | None = None) -> None:
    """A broker of ours; with ``features``, another one."""
    endpoints = (Endpoint("h", 9092 + broker, "PLAINTEXT", "PLAINTEXT"),)
    info = BrokerInfo(broker, endpoints, features=registered_features() if features is None else features)
    cluster.znodes.put(broker_path(broker), encode_broker(info, 0))
    cluster.held.setdefault(broker, set())


@pytest.fixture
def cluster() -> ControlledCluster:
    """Two brokers of ours, the first one is controller."""
    made = ControlledCluster()
    register(made, 0)
    register(made, 1)
    made.elect()
    return made


def update(
    cluster: ControlledCluster, level: int, kind: UpgradeType = UPGRADE, name: str = TRANSACTION_VERSION
) -> str | None:
    """Ask for a level; the reason why it is refused."""
    answers = cluster.run(process_feature_updates, [FeatureUpdate(name, level, kind)], validate_only=False)
    error: KafkaError | None = answers[name]
    assert error is None or error.code is ErrorCode.INVALID_REQUEST
    return None if error is None else error.message


def stored(cluster: ControlledCluster) -> tuple[dict[str, Any], int]:
    """The contents of the znode, and its version."""
    data, version, _ = cluster.znodes.nodes["/feature"]
    return json.loads(data or b""), version


# The znode


@pytest.mark.parametrize(
    ("feature", "data"),
    [
        (FeatureZnode(2, True, {}), b'{"features":{},"version":2,"status":1}'),
        (FeatureZnode(1, False, {}), b'{"features":{},"version":1,"status":0}'),
        (FeatureZnode(2, True, {"x": 2}), b'{"features":{"x":{"max_version_level":2}},"version":2,"status":1}'),
        (
            FeatureZnode(1, True, {"x": 2}),
            b'{"features":{"x":{"max_version_level":2,"min_version_level":2}},"version":1,"status":1}',
        ),
    ],
)
def test_a_feature_znode_is_written_and_read_as_apaches(feature: FeatureZnode, data: bytes) -> None:
    """Both versions of the format, with Apache's names."""
    assert encode_feature(feature) == data
    assert decode_feature(data) == feature


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"[]",
        b"{",
        b'{"version":3,"status":1,"features":{}}',
        b'{"version":0,"status":1,"features":{}}',
        b'{"version":2,"features":{}}',
        b'{"version":2,"status":2,"features":{}}',
        b'{"version":2,"status":true,"features":{}}',
        b'{"version":2,"status":1}',
        b'{"version":2,"status":1,"features":{"x":1}}',
        b'{"version":2,"status":1,"features":{"x":{}}}',
        b'{"version":2,"status":1,"features":{"x":{"max_version_level":0}}}',
        b'{"version":2,"status":1,"features":{"x":{"max_version_level":99999}}}',
        b'{"version":1,"status":1,"features":{"x":{"max_version_level":2}}}',
        b'{"version":1,"status":1,"features":{"x":{"max_version_level":1,"min_version_level":2}}}',
        b'{"version":1,"status":1,"features":{"x":{"max_version_level":1,"min_version_level":0}}}',
    ],
)
def test_a_feature_znode_that_apache_does_not_read_is_refused(data: bytes | None) -> None:
    """Level 0 above all: a feature at level 0 is not listed."""
    with pytest.raises(ZnodeFormatError):
        decode_feature(data)


# inter.broker.protocol.version


@pytest.mark.parametrize(
    ("text", "versioning"),
    [
        ("2.6-IV0", FeatureVersioning(False, 1)),
        ("0.10.2", FeatureVersioning(False, 1)),
        ("2.7", FeatureVersioning(True, 1)),
        ("3.2.3", FeatureVersioning(True, 1)),
        ("3.3-IV0", FeatureVersioning(True, 2)),
        ("3.9-IV0", FeatureVersioning(True, 2)),
        ("3.9.1", FeatureVersioning(True, 2)),
    ],
)
def test_the_protocol_version_says_whether_features_exist(text: str, versioning: FeatureVersioning) -> None:
    """From 2.7 on, and from 3.3 on in the newer format."""
    assert wrong_protocol_version(text) is None
    assert feature_versioning(text) == versioning


@pytest.mark.parametrize("text", ["", "9", "2.9", "3.9-IV1", "3.9-IV", "4.0", "0.8.0-IV0", "3.9-IV0x", "-"])
def test_a_protocol_version_that_kafka_does_not_know_is_refused(text: str) -> None:
    """A typing error must not disable features in silence."""
    assert wrong_protocol_version(text) == f"Version `{text}` is not a valid version"


# What the controller does at its election


def test_a_new_cluster_has_an_enabled_znode_without_features(cluster: ControlledCluster) -> None:
    """What is finalized is for the owner to say."""
    assert stored(cluster) == ({"features": {}, "version": 2, "status": 1}, 0)
    assert (dict(cluster.context.features.levels), cluster.context.features.epoch) == ({}, 0)


def new_cluster(levels: dict[str, int], *features: dict[str, Any] | None) -> ControlledCluster:
    """A cluster with a broker for each registration, which finalizes these levels if it is new."""
    made = ControlledCluster()
    made.znodes.remove("/feature")
    made.context.new_cluster_features = levels
    for broker, registered in enumerate(features):
        register(made, broker, registered)
    return made


def test_a_new_cluster_finalizes_what_it_is_asked_for() -> None:
    """The znode is created with it: no client sees the cluster without it. Level 0 is left out."""
    made = new_cluster({TRANSACTION_VERSION: 2}, None, None)
    made.znodes.perform(set_up_feature_versioning(made.context))
    assert stored(made) == (
        {"features": {TRANSACTION_VERSION: {"max_version_level": 2}}, "version": 2, "status": 1},
        0,
    )
    assert made.context.features.level(TRANSACTION_VERSION) == 2
    none = new_cluster({TRANSACTION_VERSION: 0}, None)
    none.znodes.perform(set_up_feature_versioning(none.context))
    assert stored(none)[0]["features"] == {}


def test_a_cluster_with_a_znode_keeps_its_levels(cluster: ControlledCluster) -> None:
    """What a new one would finalize does not matter."""
    cluster.context.new_cluster_features = {TRANSACTION_VERSION: 2}
    cluster.znodes.perform(set_up_feature_versioning(cluster.context))
    assert stored(cluster) == ({"features": {}, "version": 2, "status": 1}, 0)


def test_a_new_cluster_with_a_broker_that_lacks_a_feature_finalizes_none() -> None:
    """That broker would stop, as one of Apache Kafka 3.9 does."""
    made = new_cluster({TRANSACTION_VERSION: 2}, None, {})
    made.znodes.perform(set_up_feature_versioning(made.context))
    assert stored(made)[0]["features"] == {}


def test_an_old_protocol_version_finalizes_nothing_in_a_new_cluster() -> None:
    """It has no features."""
    made = new_cluster({TRANSACTION_VERSION: 2}, None)
    made.context.feature_versioning = FeatureVersioning(False, 1)
    made.znodes.perform(set_up_feature_versioning(made.context))
    assert stored(made)[0] == {"features": {}, "version": 1, "status": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("transaction.version", "equals sign not found"),
        ("transaction.version=x", "unable to parse x as a short"),
        ("transaction.version=3", "has the levels 0 to 2, not 3"),
        ("transaction.version=-1", "has the levels 0 to 2, not -1"),
        ("transaction.version=40000", "unable to parse 40000 as a short"),
        ("group.version=1", "Unsupported feature: group.version"),
        ("transaction.version=1,transaction.version=2", "specified more than once"),
    ],
)
def test_levels_that_no_new_cluster_can_have_end_the_start(text: str, message: str) -> None:
    """As wrong values of other properties do."""
    with pytest.raises(ConfigError, match=message):
        DEFINITIONS.parse({"zookeeper.connect": "h:1", "new.cluster.features": text})


def test_a_new_controller_keeps_what_is_finalized(cluster: ControlledCluster) -> None:
    """It writes nothing, and so the epoch stays."""
    assert update(cluster, 1) is None
    cluster.elect()
    assert stored(cluster)[1] == 1
    assert cluster.context.features.level(TRANSACTION_VERSION) == 1


def test_a_disabled_znode_is_enabled_without_its_features(cluster: ControlledCluster) -> None:
    """Levels below a disabled status mean nothing, as on Apache's brokers."""
    cluster.znodes.put("/feature", encode_feature(FeatureZnode(1, False, {"x": 3})))
    cluster.elect()
    assert stored(cluster)[0] == {"features": {}, "version": 2, "status": 1}


def test_an_old_protocol_version_disables_features(cluster: ControlledCluster) -> None:
    """The znode says so to brokers of the old release, and clients can ask for nothing."""
    assert update(cluster, 1) is None
    cluster.context.feature_versioning = FeatureVersioning(False, 1)
    cluster.znodes.perform(set_up_feature_versioning(cluster.context))
    assert stored(cluster)[0] == {"features": {}, "version": 1, "status": 0}
    assert (dict(cluster.context.features.levels), cluster.context.features.epoch) == ({}, NO_EPOCH)
    with pytest.raises(KafkaError, match="Feature versioning system is disabled"):
        update(cluster, 1)


def test_a_znode_that_cannot_be_read_is_left_alone(cluster: ControlledCluster) -> None:
    """The cluster has a controller all the same; nothing is finalized, and nothing can be."""
    cluster.znodes.put("/feature", b"{")
    cluster.elect()
    assert cluster.znodes.nodes["/feature"][0] == b"{"
    assert sorted(cluster.context.brokers) == [0, 1]
    answers = cluster.run(
        process_feature_updates, [FeatureUpdate(TRANSACTION_VERSION, 1, UPGRADE)], validate_only=False
    )
    assert answers[TRANSACTION_VERSION].code is ErrorCode.FEATURE_UPDATE_FAILED


# UpdateFeatures


def test_a_level_is_finalized_and_lowered_and_removed(cluster: ControlledCluster) -> None:
    """Each change raises the epoch; a removed feature is at level 0."""
    features = cluster.context.features
    for level in range(1, HIGHEST + 1):
        assert update(cluster, level) is None
        assert (features.level(TRANSACTION_VERSION), features.epoch) == (level, level)
    assert stored(cluster)[0]["features"] == {TRANSACTION_VERSION: {"max_version_level": HIGHEST}}
    for level in range(HIGHEST - 1, 0, -1):
        assert update(cluster, level, SAFE) is None
        assert features.level(TRANSACTION_VERSION) == level
    assert update(cluster, 0, SAFE) is None
    assert stored(cluster)[0]["features"] == {}
    assert features.level(TRANSACTION_VERSION) == 0


@pytest.mark.parametrize(
    ("existing", "name", "level", "kind", "reason"),
    [
        (0, "", 1, UPGRADE, "Feature name can not be empty."),
        (0, TRANSACTION_VERSION, 1, UpgradeType.UNKNOWN, "Received unknown upgrade type."),
        (0, TRANSACTION_VERSION, 0, SAFE, "Can not delete non-existing finalized feature."),
        (0, TRANSACTION_VERSION, 0, UNSAFE, "Can not delete non-existing finalized feature."),
        (1, TRANSACTION_VERSION, 0, UPGRADE, "without setting the SAFE downgradeType"),
        (1, TRANSACTION_VERSION, 1, UPGRADE, "Can not upgrade a finalized feature from existing versionLevel:1"),
        (1, TRANSACTION_VERSION, 1, SAFE, "Can not downgrade a finalized feature from existing versionLevel:1"),
        (0, "no.such", 1, UPGRADE, "the provided feature is not supported"),
        (0, TRANSACTION_VERSION, HIGHEST + 1, UPGRADE, f"versionLevel:{HIGHEST + 1} is lower than the supported"),
        (1, TRANSACTION_VERSION, HIGHEST + 1, SAFE, "can not be greater than existing versionLevel:1."),
    ],
)
def test_a_wrong_update_is_refused_in_apaches_words(
    cluster: ControlledCluster, existing: int, name: str, level: int, kind: UpgradeType, reason: str
) -> None:
    """And nothing is written."""
    if existing:
        assert update(cluster, existing) is None
    before = stored(cluster)
    assert reason in (update(cluster, level, kind, name) or "")
    assert stored(cluster) == before


def test_a_level_that_a_live_broker_lacks_is_refused(cluster: ControlledCluster) -> None:
    """An Apache broker of 3.9 in ZooKeeper mode registers without features, and would stop."""
    register(cluster, 2, {})
    cluster.run(process_broker_change)
    assert "brokers were found to have incompatible versions" in (update(cluster, 1) or "")
    cluster.stop(2)
    cluster.run(process_broker_change)
    assert update(cluster, 1) is None


def test_valid_updates_are_made_beside_wrong_ones(cluster: ControlledCluster) -> None:
    """Each feature has its own answer."""
    updates = [FeatureUpdate("no.such", 1, UPGRADE), FeatureUpdate(TRANSACTION_VERSION, 1, UPGRADE)]
    answers = cluster.run(process_feature_updates, updates, validate_only=False)
    assert [None if answer is None else answer.code for answer in answers.values()] == [ErrorCode.INVALID_REQUEST, None]
    assert cluster.context.features.level(TRANSACTION_VERSION) == 1


def test_a_validation_changes_nothing(cluster: ControlledCluster) -> None:
    """It answers as the change would be answered."""
    updates = [FeatureUpdate(TRANSACTION_VERSION, 1, UPGRADE)]
    assert cluster.run(process_feature_updates, updates, validate_only=True) == {TRANSACTION_VERSION: None}
    assert stored(cluster)[1] == 0


# Membership


def test_a_broker_without_a_finalized_feature_is_no_member(cluster: ControlledCluster) -> None:
    """It registered without looking; the controller leaves it out, and takes it when
    the feature is gone."""
    assert update(cluster, 1) is None
    register(cluster, 2, {})
    cluster.run(process_broker_change)
    assert sorted(cluster.context.brokers) == [0, 1]
    assert update(cluster, 0, SAFE) is None
    cluster.run(process_broker_change)
    assert sorted(cluster.context.brokers) == [0, 1, 2]


@pytest.mark.parametrize(
    "features",
    [
        {"x": {}},
        {"x": {"min_version": "1", "max_version": "3"}},
        {"x": {"min_version": 2, "max_version": 3}},
        {"y": {}},
    ],
)
def test_a_registration_with_other_levels_does_not_support_a_feature(
    cluster: ControlledCluster, features: dict[str, Any]
) -> None:
    """Registrations are any client's bytes."""
    cluster.context.features.levels = {"x": 1}
    register(cluster, 2, features)
    cluster.run(process_broker_change)
    assert 2 not in cluster.context.brokers


def test_the_cache_refuses_what_this_broker_does_not_support() -> None:
    """The broker stops; what it knew stays."""
    cache = FeatureCache()
    cache.learn(FeatureZnode(2, True, {TRANSACTION_VERSION: 1}), 4)
    for levels in ({"no.such": 1}, {TRANSACTION_VERSION: HIGHEST + 1}):
        with pytest.raises(IncompatibleFeaturesError, match=next(iter(levels))):
            cache.learn(FeatureZnode(2, True, levels), 5)
    assert (cache.level(TRANSACTION_VERSION), cache.epoch) == (1, 4)


def test_the_cache_has_what_the_znode_said_last() -> None:
    """Nothing is finalized where there is none."""
    cache, seen = FeatureCache(), []
    for feature, epoch in (
        (FeatureZnode(2, True, {}), 0),
        (FeatureZnode(2, True, {TRANSACTION_VERSION: 1}), 1),
        (FeatureZnode(2, True, {TRANSACTION_VERSION: 1}), 2),
        (None, NO_EPOCH),
    ):
        cache.learn(feature, epoch)
        seen.append((dict(cache.levels), cache.epoch))
    assert seen == [({}, 0), ({TRANSACTION_VERSION: 1}, 1), ({TRANSACTION_VERSION: 1}, 2), ({}, NO_EPOCH)]
    assert cache.epoch == NO_EPOCH


def test_a_feature_that_is_named_twice_is_refused_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Before any broker is asked, as Kafka's tool does."""
    twice = ["--feature", "first.one", "--feature", "second.one", "--feature", "second.one"]
    assert main(["features", "disable", *twice, "--bootstrap-server", "localhost:1"]) == 1
    assert "Feature second.one was specified more than once." in capsys.readouterr().err

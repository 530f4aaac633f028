"""How dynamic configuration changes, and what may not change."""

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.configuration.definitions import DEFINITIONS
from barnabas.broker.configuration.operations import change_texts
from barnabas.broker.configuration.rules import validate_broker_config
from barnabas.log.settings import TOPIC_SETTINGS
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = range(4)
STATIC = DEFINITIONS.parse({"zookeeper.connect": "h:1", "log.retention.hours": "24"})


def test_operations_set_delete_append_and_subtract() -> None:
    """Lists start from their default, and take nothing twice."""
    texts = {"retention.ms": "1", "segment.ms": "2"}
    assert change_texts(
        texts,
        [("retention.ms", SET, "5"), ("segment.ms", DELETE, None), ("cleanup.policy", APPEND, "compact,delete")],
        TOPIC_SETTINGS,
    ) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert change_texts(
        {"cleanup.policy": "delete,compact"}, [("cleanup.policy", SUBTRACT, "delete")], TOPIC_SETTINGS
    ) == {"cleanup.policy": "compact"}
    assert texts == {"retention.ms": "1", "segment.ms": "2"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_take_and_give_members(operation: int) -> None:
    """With Kafka's words."""
    with pytest.raises(KafkaError, match="is not allowed for config key: retention.ms") as error:
        change_texts({}, [("retention.ms", operation, "5")], TOPIC_SETTINGS)
    assert error.value.code is ErrorCode.INVALID_CONFIG


def test_an_unknown_operation_is_refused() -> None:
    """The number comes from the wire."""
    with pytest.raises(KafkaError) as error:
        change_texts({}, [("retention.ms", 7, "5")], TOPIC_SETTINGS)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_a_dynamic_property_stands_over_the_files() -> None:
    """The settings' own text is unchanged."""
    changed = validate_broker_config(STATIC, {"log.retention.ms": "5000"}, per_broker=False)
    assert changed["log.retention.ms"] == 5000
    assert STATIC["log.retention.ms"] is None


def test_what_needs_a_restart_or_is_no_value_is_refused() -> None:
    """Names that no definition knows are kept, for a plug-in may know them."""
    with pytest.raises(ConfigError, match=r"Cannot update these configs dynamically: Set\(log.dirs\)"):
        validate_broker_config(STATIC, {"log.dirs": "/x"}, per_broker=True)
    with pytest.raises(ConfigError, match=r"log\.retention\.ms"):
        validate_broker_config(STATIC, {"log.retention.ms": "soon"}, per_broker=True)
    with pytest.raises(ConfigError):
        validate_broker_config(STATIC, {"log.cleanup.policy": "shred"}, per_broker=True)
    assert validate_broker_config(STATIC, {"my.own": "1"}, per_broker=True).unknown() == ["my.own"]


@pytest.mark.parametrize("version", ["0.10.0.0", "0.11.0-IV2", "2.8", "3.0-IV1"])
def test_old_message_format_versions_are_still_taken(version: str) -> None:
    """Tools for old clusters write them; they change nothing."""
    assert TOPIC_SETTINGS.parse({"message.format.version": version})["message.format.version"] == version

"""The operations of IncrementalAlterConfigs on the texts of an entity (KIP-339).

In Kafka: `ConfigAdminManager.prepareIncrementalConfigs`.
"""

from collections.abc import Iterable, Mapping

from barnabas.base.settings import Definitions, Kind
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["APPEND", "DELETE", "SET", "SUBTRACT", "AlterConfigOp", "change_texts"]

SET, DELETE, APPEND, SUBTRACT = range(4)
AlterConfigOp = tuple[str, int, str | None]
"""Name, what to do (KIP-339's numbers), and the value."""


def change_texts(
    texts: Mapping[str, str], operations: Iterable[AlterConfigOp], definitions: Definitions
) -> dict[str, str]:
    """Texts after the operations of IncrementalAlterConfigs.

    Raises `KafkaError` with Kafka's words."""
    changed = dict(texts)
    for name, operation, value in operations:
        if operation == SET:
            changed[name] = value or ""
        elif operation == DELETE:
            changed.pop(name, None)
        elif operation in (APPEND, SUBTRACT):
            word = "append" if operation == APPEND else "subtract"
            if name not in definitions or definitions[name].kind is not Kind.LIST:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Config value {word} is not allowed for config key: {name}")
            old = [item for item in (changed.get(name, definitions[name].default) or "").split(",") if item]
            given = [item for item in (value or "").split(",") if item]
            if operation == APPEND:
                new = old + [item for item in given if item not in old]
            else:
                new = [item for item in old if item not in given]
            changed[name] = ",".join(new)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
    return changed

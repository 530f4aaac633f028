"""``barnabas configs`` for users, clients and addresses: quotas, which have requests
of their own."""

import argparse
from collections.abc import Sequence

from barnabas.base.errors import ConfigError
from barnabas.cli.configs.changes import Entity, parse_changes
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from barnabas.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

__all__ = ["run_quotas"]

_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_QUOTAS = {
    "users": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "clients": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "ips": ("connection_creation_rate",),
}
_EXACT, _DEFAULT, _ANY = 0, 1, 2  # DescribeClientQuotas' match types


def run_quotas(connection: AdminConnection, given: argparse.Namespace, entities: Sequence[Entity]) -> int:
    """Describe or alter the quotas of an entity, or of a user and client together."""
    if given.alter:
        _alter(connection, given, entities)
    else:
        _describe(connection, given, entities)
    return 0


def _describe(connection: AdminConnection, given: argparse.Namespace, entities: Sequence[Entity]) -> None:
    components = [
        ComponentData(
            entity_type=_TYPES[entity.kind],
            match_type=_ANY if entity.name is None else _EXACT if entity.name else _DEFAULT,
            match=entity.name or None,
        )
        for entity in entities
    ]
    response = connection.send(
        DescribeClientQuotasRequest(components=components, strict=True), DescribeClientQuotasResponse
    )
    if response.error_code:
        raise KafkaError(response.error_code, response.error_message)
    found = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or ()
    ]
    if given.output == "json":
        print_json([{"entity": entity, "quotas": quotas} for entity, quotas in found])
        return
    for entity, quotas in found:
        names = ", ".join(
            f"the default {_SHOWN[kind]}" if entity[kind] is None else f"{_SHOWN[kind]} '{entity[kind]}'"
            for kind in _SHOWN
            if kind in entity
        )
        values = ", ".join(f"{key}={value}" for key, value in quotas.items())
        print(f"Quota configs for {names} are {values}")


def _alter(connection: AdminConnection, given: argparse.Namespace, entities: Sequence[Entity]) -> None:
    changes = parse_changes(given.add_config, given.add_config_file, given.delete_config)
    allowed = _QUOTAS[entities[0].kind]
    unknown = [name for name in changes if name not in allowed]
    if unknown:
        raise ConfigError(f"{', '.join(unknown)}: the quotas of {entities[0].kind} are {', '.join(allowed)}")
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[
                    AlterClientQuotasRequestEntityData(entity_type=_TYPES[entity.kind], entity_name=entity.name or None)
                    for entity in entities
                ],
                ops=[
                    OpData(key=name, value=_number(name, value), remove=value is None)
                    for name, value in changes.items()
                ],
            )
        ]
    )
    response = connection.send_to_controller(
        request, AlterClientQuotasResponse, lambda answer: [entry.error_code for entry in answer.entries]
    )
    for entry in response.entries:
        if entry.error_code:
            raise KafkaError(entry.error_code, entry.error_message)
    for entity in entities:
        subject = f"{entity.kind[:-1]} {entity.name}" if entity.name else f"default {entity.kind[:-1]}"
        print(f"Completed updating config for {subject}.")


def _number(name: str, value: str | None) -> float:
    try:
        return 0.0 if value is None else float(value)
    except ValueError:
        raise ConfigError(f"{name}={value}: a number is expected") from None

"""Quotas of users, clients and addresses over an `AdminConnection` (KIP-546).

In Kafka: `Admin.alterClientQuotas`.
"""

from collections.abc import Mapping

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import refusal
from barnabas.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from barnabas.wire.kafka.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

__all__ = ["QuotaEntity", "alter_client_quotas", "describe_client_quotas"]

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of "user", "client-id" or "ip" and a name; None is the default of all that have none."""


def describe_client_quotas(connection: AdminConnection) -> dict[QuotaEntity, dict[str, float]]:
    """All quotas, by entity and name."""
    response = connection.send(DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
    if response.error_code:
        raise refusal(response.error_code, response.error_message)
    return {
        tuple((item.entity_type, item.entity_name) for item in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


def alter_client_quotas(connection: AdminConnection, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
    """Set an entity's quotas, such as ``producer_byte_rate``; None removes one."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    response = connection.send_to_controller(
        AlterClientQuotasRequest(entries=[entry]),
        AlterClientQuotasResponse,
        lambda answer: [one.error_code for one in answer.entries],
    )
    for result in response.entries:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)

"""What a command says of a batch that no consumer can read: where and what it is, why,
and how to step over it."""

import contextlib
import shlex
from collections.abc import Mapping
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.reachability import ANSWER_S, admin_connection
from barnabas.client.admin.batches import StoredBatch, batch_at
from barnabas.client.errors import DamagedBatchError

__all__ = ["explained"]


def explained(error: DamagedBatchError, bootstrap: str, properties: Mapping[str, Any]) -> str:
    """The error with what the batch's leader knows of it, as far as that can be asked."""
    topic_partition = TopicPartition(error.topic, error.partition)
    batch: StoredBatch | None = None
    with contextlib.suppress(BarnabasError):
        connection = admin_connection(bootstrap, properties, ANSWER_S)
        if connection is not None:
            with connection:
                batch = batch_at(connection, topic_partition, error.offset)
    if batch is None or batch.damage is None:
        return str(error)
    where, behind = shlex.quote(bootstrap), batch.last_offset + 1
    topic = shlex.quote(error.topic)
    return (
        f"{topic_partition}: the batch with offsets {batch.first_offset} to {batch.last_offset} "
        f"({batch.codec}, {batch.size_bytes} bytes) cannot be read: {batch.damage}. Every consumer stops "
        f"here; to step over it:\n"
        f"  a group, once its members are stopped: barnabas consumer-groups --bootstrap-server {where} --group GROUP "
        f"--reset-offsets --topic {topic}:{error.partition} --to-offset {behind} --execute\n"
        f"  here: barnabas console-consumer --bootstrap-server {where} --topic {topic} --partition {error.partition} "
        f"--offset {behind}"
    )

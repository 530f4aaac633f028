"""SyncGroup (key 14): the leader hands in the assignment, every member gets its own."""

from barnabas.broker.apis import ApiHandler
from barnabas.broker.node import Node, Request
from barnabas.wire.kafka.api import ApiKey


def handle(node: Node, request: Request) -> None:
    """Answer when the leader's assignment is committed."""
    node.groups.sync(request.message, request.reply)


API = ApiHandler(ApiKey.SYNC_GROUP, 0, 5, handle)

"""How large a request of an API may be, by its form, so that a stranger's is not read in full.

Apache's brokers take requests of 100 MB (socket.request.max.bytes) in every API. Few APIs need
that: Produce carries records, CreateTopics and AlterConfigs what administrators write, and the
controller's requests a whole cluster. A request without lists cannot even be so large, for a string
has at most 32,767 bytes. One that lists topics, partitions or groups may have 100,000 elements
(`barnabas.wire.kafka.reader_source`).

In Kafka: `NetworkReceive`, whose one limit closes the connection with an `InvalidReceiveException`.
"""

from barnabas.wire.kafka.schema import Struct

__all__ = ["LIMIT_OF_ALL", "LISTING_REQUEST_BYTES", "SINGLE_REQUEST_BYTES", "most_request_bytes"]

LIMIT_OF_ALL = (1 << 31) - 1
"""As large as socket.request.max.bytes lets any request be."""
SINGLE_REQUEST_BYTES = 256 * 1024
"""A request without lists: at most eight strings of the greatest length."""
LISTING_REQUEST_BYTES = 16 * 1024 * 1024
"""A request with lists: 100,000 elements of 160 bytes."""


def most_request_bytes(request: type[Struct]) -> int:
    """The limit for requests of this form, in all their versions."""
    return LISTING_REQUEST_BYTES if _has_lists(request) else SINGLE_REQUEST_BYTES


def _has_lists(struct: type[Struct]) -> bool:
    """Whether a structure holds lists or bytes, which have no length of their own."""
    return any(
        field.kind in ("array", "bytes", "records") or (isinstance(field.element, type) and _has_lists(field.element))
        for field in struct.FIELDS
    )

"""DeleteTopics (API key 20)."""

from barnabas.base.ids import Uuid
from barnabas.wire.kafka.schema import Message, Struct, array_of, int16, int32, string, uuid

__all__ = ["DeletableTopicResult", "DeleteTopicState", "DeleteTopicsRequest", "DeleteTopicsResponse"]


class DeleteTopicState(Struct):
    """``topics[]`` of `DeleteTopicsRequest`."""

    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: Uuid = uuid("6+")


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    """API key 20, versions 1 to 6."""

    topics: list[DeleteTopicState] = array_of(DeleteTopicState, "6+")
    topic_names: list[str] = array_of("string", "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """``responses[]`` of `DeleteTopicsResponse`."""

    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    """API key 20, versions 1 to 6."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array_of(DeletableTopicResult)

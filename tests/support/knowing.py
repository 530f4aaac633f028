"""What each broker of a cluster has heard: news of members and topics reaches brokers one by one,
and some time after the controller, or the client that asked for the change, has it."""

from barnabas.base.errors import BarnabasError
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.messages.metadata import MetadataResponse
from support.waiting import eventually

_TIMEOUT_S = 90


def members_known(bootstrap: str, count: int) -> None:
    """Wait until every broker of ``bootstrap`` knows of a controller and of at least
    ``count`` brokers.

    A broker listens before it has heard of anyone, and a client that comes that early may wait for
    long: librdkafka does not ask a broker again that answered with no brokers at all.
    """
    for server in bootstrap.split(","):
        eventually(lambda at=server: _knows_members(at, count), timeout_s=_TIMEOUT_S, what=f"members at {server}")


def topic_known(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until every broker of ``bootstrap`` names a leader for each of the
    topic's partitions."""
    for server in bootstrap.split(","):
        eventually(
            lambda at=server: _knows_topic(at, topic, partitions), timeout_s=_TIMEOUT_S, what=f"{topic} at {server}"
        )


def _ask(server: str, topics: list[str]) -> MetadataResponse | None:
    try:
        with AdminConnection(server) as connection:
            return connection.metadata(topics)
    except BarnabasError:
        return None


def _knows_members(server: str, count: int) -> bool:
    answer = _ask(server, [])
    return answer is not None and len(answer.brokers) >= count and answer.controller_id >= 0


def _knows_topic(server: str, topic: str, partitions: int) -> bool:
    answer = _ask(server, [topic])
    if answer is None:
        return False
    (found,) = answer.topics
    return len(found.partitions) == partitions and all(one.leader_id >= 0 for one in found.partitions)

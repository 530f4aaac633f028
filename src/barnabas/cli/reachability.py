"""One rule for all commands when no broker answers: a clear error within five seconds, or within ``--timeout``."""

from collections.abc import Mapping
from typing import Any

from barnabas.client.properties import renamed_for_all, security_properties

__all__ = ["ANSWER_S", "CONNECT_TIMEOUT", "require_broker"]

ANSWER_S = 5.0
"""How long a command waits for the first answer of a broker."""
CONNECT_TIMEOUT = "socket.connection.setup.timeout.ms"


def require_broker(bootstrap: str, properties: Mapping[str, Any], timeout_s: float = ANSWER_S) -> None:
    """Raise `ConnectError` unless one of the brokers answers in time."""
    from barnabas.client.admin_connection import AdminConnection
    from barnabas.client.errors import LibrdkafkaOnlyError

    given = renamed_for_all(properties)
    bootstrap = bootstrap or given.get("bootstrap.servers", "")
    secure = security_properties(given)
    try:
        connection = AdminConnection(bootstrap, {**secure, CONNECT_TIMEOUT: str(round(timeout_s * 1000))})
    except LibrdkafkaOnlyError:
        pass
    else:
        with connection:
            connection.describe_cluster()
        return
    # librdkafka has what AdminConnection has not, Kerberos for one, and says at the end of the time what is wrong.
    from barnabas.client.consumer import Consumer

    with Consumer({**secure, "bootstrap.servers": bootstrap}, close_timeout_s=1.0) as probe:
        probe.topics(timeout_s)

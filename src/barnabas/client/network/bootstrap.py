"""What is checked before librdkafka starts: host names that cannot be resolved would
be tried for ever.

In Kafka: `ClientUtils.parseAndValidateAddresses`.
"""

import re
import socket

from barnabas.client.errors import UnknownHostError
from barnabas.client.network.broker_link import parse_servers

__all__ = ["check_hosts", "without_protocols"]

_PROTOCOL = re.compile(r"^[A-Za-z_]+://")


def check_hosts(bootstrap: str) -> None:
    """Raise `UnknownHostError` unless one of the names can be resolved,
    `ConfigurationError` if one is not an address."""
    hosts = [host for host, _ in parse_servers(without_protocols(bootstrap))]
    for host in hosts:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            continue
        return
    names = ", ".join(dict.fromkeys(hosts))
    raise UnknownHostError(
        f"bootstrap.servers={bootstrap}: no address is known for {names}",
        remedy="check the spelling, and the network's DNS",
    )


def without_protocols(bootstrap: str) -> str:
    """The addresses alone: librdkafka takes ``PLAINTEXT://localhost:9092`` too."""
    return ",".join(_PROTOCOL.sub("", item.strip()) for item in bootstrap.split(","))

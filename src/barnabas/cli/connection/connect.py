"""The connection of a tool to the cluster that its options name.

In Kafka: the tools' calls of `Admin.create`.
"""

import argparse
import math
from typing import TYPE_CHECKING

from barnabas.cli.connection.properties import properties_file
from barnabas.client.properties.translation import CONNECT_TIMEOUT_PROPERTY

if TYPE_CHECKING:
    from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = ["connect"]

_REQUEST_TIMEOUT_MS, _API_TIMEOUT_MS = 30_000, 60_000  # Kafka's


def connect(arguments: argparse.Namespace, client_id: str) -> "AdminConnection":
    """A connection to the cluster that the options name, with the command's deadline.

    Close it after use."""
    from barnabas.client.cluster.admin_connection import AdminConnection
    from barnabas.client.network.deadline import Deadline

    properties = properties_file(arguments.command_config)
    properties.setdefault("client.id", client_id)
    # Only the deadline decides: one that is longer than Kafka's defaults raises these, too.
    timeout_ms = math.ceil(arguments.connect_timeout * 1000)
    properties.setdefault(CONNECT_TIMEOUT_PROPERTY, str(timeout_ms))
    properties.setdefault("request.timeout.ms", str(max(timeout_ms, _REQUEST_TIMEOUT_MS)))
    properties.setdefault("default.api.timeout.ms", str(max(timeout_ms, _API_TIMEOUT_MS)))
    return AdminConnection(arguments.bootstrap_server, properties, Deadline(arguments.connect_timeout))

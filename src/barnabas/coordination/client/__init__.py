"""The client of brokers and tools, for our servers and Apache ZooKeeper's."""

from barnabas.coordination.client.connection import BlockingClient, CoordinationClient, ServerList, SessionEvent

__all__ = ["BlockingClient", "CoordinationClient", "ServerList", "SessionEvent"]

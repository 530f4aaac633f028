"""The client of brokers and tools, for our servers and Apache ZooKeeper's: ZooKeeper's
ClientCnxn and ZooKeeper classes.

`session` decides, `connection` does the I/O on an asyncio loop, `blocking` is for
threads without a loop.
"""

from barnabas.coordination.client.blocking import BlockingClient
from barnabas.coordination.client.connect_string import ConnectString
from barnabas.coordination.client.connection import CoordinationClient
from barnabas.coordination.client.session import SessionEvent

__all__ = ["BlockingClient", "ConnectString", "CoordinationClient", "SessionEvent"]

"""The names of a test cluster's servers: "0", "1" ... are brokers, "zookeeper" is the coordination
server, and those of an ensemble are "zookeeper1", "zookeeper2" and so on."""

from barnabas.base.errors import BarnabasError

__all__ = ["is_broker", "title_of", "zookeeper_name"]


def zookeeper_name(server_id: int, servers: int) -> str:
    """The name of a coordination server, by its number from 1, in a cluster of ``servers``."""
    if not 1 <= server_id <= servers:
        raise BarnabasError(f"there is no coordination server {server_id}: they are numbered from 1")
    return f"zookeeper{server_id}" if servers > 1 else "zookeeper"


def is_broker(name: str) -> bool:
    """Whether a name is that of a broker."""
    return not name.startswith("zookeeper")


def title_of(name: str) -> str:
    """A server's name for messages."""
    return f"broker {name}" if is_broker(name) else name

"""The connect string ``host:port,host:port/chroot``: ZooKeeper's ConnectStringParser."""

from typing import NamedTuple

from barnabas.base.errors import ConfigError

__all__ = ["ConnectString"]

_DEFAULT_PORT = 2181


class ConnectString(NamedTuple):
    """The servers of a connect string, and its chroot ("" for none)."""

    servers: tuple[tuple[str, int], ...]
    chroot: str

    @classmethod
    def parse(cls, text: str) -> "ConnectString":
        """Raises `ConfigError`."""
        addresses, slash, path = text.partition("/")
        chroot = slash + path.rstrip("/")
        servers = []
        for address in map(str.strip, addresses.split(",")):
            host, _, port = address.rpartition(":") if ":" in address else (address, "", str(_DEFAULT_PORT))
            host = host.strip("[]")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise ConfigError(
                    f"{text!r} is not a list of coordination servers: host:port,host:port/chroot is expected"
                )
            servers.append((host, int(port)))
        return cls(tuple(servers), "" if chroot == "/" else chroot)

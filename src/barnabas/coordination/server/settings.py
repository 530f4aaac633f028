"""A coordination server's settings, under the names of ZooKeeper's ``zoo.cfg``.

Settings that Apache's server takes only as Java system properties (``zookeeper.snapCount``) stand here under their
name without ``zookeeper.``, as ZooKeeper's own zoo.cfg allows.
"""

import re
from collections.abc import Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, Kind, Setting, Values, at_least, between, one_of

__all__ = ["DEFINITIONS", "parse_settings"]

_SERVER = re.compile(r"server\.\d+")


def _not_empty(value: str) -> str | None:
    return None if value else "it must name a directory"  # the working directory is nobody's wish


DEFINITIONS = Definitions(
    [
        Setting("tickTime", Kind.INT, "3000", "The unit of time, in milliseconds.", at_least(1)),
        Setting(
            "dataDir", Kind.STRING, None, "Where snapshots are, and the log if dataLogDir is not set.", _not_empty, required=True
        ),
        Setting("dataLogDir", Kind.STRING, None, "Where the transaction log is."),
        Setting("clientPort", Kind.INT, None, "The port for clients; 0 takes any free one.", between(0, 65535), required=True),
        Setting("clientPortAddress", Kind.STRING, "", "The address to listen on; empty for all."),
        Setting("initLimit", Kind.INT, "10", "Ticks that a follower may take to connect.", at_least(1)),
        Setting("syncLimit", Kind.INT, "5", "Ticks that a follower may be behind.", at_least(1)),
        Setting("minSessionTimeout", Kind.INT, "-1", "In ms; -1 for two ticks.", at_least(-1)),
        Setting("maxSessionTimeout", Kind.INT, "-1", "In ms; -1 for twenty ticks.", at_least(-1)),
        Setting("maxClientCnxns", Kind.INT, "60", "Connections of one address; 0 for no limit.", at_least(0)),
        Setting("maxCnxns", Kind.INT, "0", "Connections in all; 0 for no limit.", at_least(0)),
        Setting("4lw.commands.whitelist", Kind.LIST, "srvr", "Four-letter words that are answered; * for all."),
        Setting("snapCount", Kind.INT, "100000", "Transactions between snapshots.", at_least(2)),
        Setting("preAllocSize", Kind.INT, "65536", "Kilobytes that a log file is extended by.", at_least(0)),
        Setting("autopurge.snapRetainCount", Kind.INT, "3", "Snapshots that purging leaves.", at_least(3)),
        Setting("autopurge.purgeInterval", Kind.INT, "0", "Hours between purges; 0 for none.", at_least(0)),
        Setting("jute.maxbuffer", Kind.INT, "1048575", "Bytes that a request may have.", at_least(1024)),
        Setting("globalOutstandingLimit", Kind.INT, "1000", "Requests of a connection that may wait.", at_least(1)),
        Setting("extendedTypesEnabled", Kind.BOOLEAN, "false", "Whether there may be TTL nodes."),
        Setting("forceSync", Kind.STRING, "yes", "Whether the log is synced before an acknowledgement.", one_of("yes", "no")),
        Setting("sessionlessConnectionTimeout", Kind.INT, "10000", "Ms that a connection has to ask for a session.", at_least(1)),
    ]
)  # fmt: skip


def parse_settings(texts: Mapping[str, str]) -> Values:
    """Typed settings from the texts of a zoo.cfg. Raises `ConfigError` for what cannot be used.

    One ``server.N`` line means a server alone, as with Apache's; several would be an ensemble.
    """
    texts = {name.removeprefix("zookeeper."): text for name, text in texts.items()}
    servers = sorted(name for name in texts if _SERVER.fullmatch(name))
    if len(servers) > 1:
        raise ConfigError(
            f"ensembles are not supported yet, and the configuration names {len(servers)} servers "
            f"({', '.join(servers)}): remove these lines to run one server alone"
        )
    values = DEFINITIONS.parse({name: text for name, text in texts.items() if name not in servers})
    low, high = session_timeouts_ms(values)
    if low > high:
        raise ConfigError(f"minSessionTimeout ({low} ms) is above maxSessionTimeout ({high} ms)")
    return values


def session_timeouts_ms(values: Values) -> tuple[int, int]:
    """The least and the greatest time-out that a session may have."""
    tick_ms = values["tickTime"]
    low, high = values["minSessionTimeout"], values["maxSessionTimeout"]
    return low if low >= 0 else 2 * tick_ms, high if high >= 0 else 20 * tick_ms

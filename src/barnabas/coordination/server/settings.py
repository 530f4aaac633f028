"""The settings of a coordination server: one table of ZooKeeper's names, and what each does here.

ZooKeeper reads some of them from ``zoo.cfg`` and others as Java system properties
(``zookeeper.snapCount``); in zoo.cfg these may be written without ``zookeeper.``. Here both
spellings mean the same. In ZooKeeper: QuorumPeerConfig and ServerConfig.

The ``server.N``, ``group.N`` and ``weight.N`` lines are read by `barnabas.coordination.quorum`;
`barnabas.coordination.server.peer_config` says what they mean for this server, alone
or as a member.

A setting works, or it has no effect (and the start says so), or it asks for protection that this
version does not have. In the last case the server does not start: it would look protected and be
open. A name that is not in the table is reported. Parsing, warnings and
``docs/reference/configuration.md`` all come from the table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, Kind, Setting, Values, at_least, between, one_of
from barnabas.coordination.quorum.configuration import QuorumConfiguration, is_dynamic
from barnabas.coordination.server.access_settings import (
    AUTHENTICATION_PROVIDERS,
    CLIENT_ACCESS_SETTINGS,
    OPERATOR_SETTINGS,
    TLS_SETTINGS,
)
from barnabas.coordination.server.quorum_security import QUORUM_SECURITY_SETTINGS, check_quorum_authentication
from barnabas.coordination.server.unused_security import check_unused_security, unused_security

__all__ = [
    "LEAST_SNAPSHOTS",
    "ZOO_CFG_DEFINITIONS",
    "ZOO_CFG_REFUSED",
    "ZOO_CFG_WITHOUT_EFFECT",
    "RefusedSetting",
    "ensemble_of",
    "ineffective_lines",
    "is_distributed",
    "parse_settings",
    "quorum_of",
    "session_timeouts_ms",
]

_HARMLESS = frozenset(("", "false", "no", "none", "0"))
_ACCESS_SETTINGS = (*CLIENT_ACCESS_SETTINGS, *TLS_SETTINGS, *QUORUM_SECURITY_SETTINGS)
_ACCESS_BY_LOWER = {setting.name.lower(): setting.name for setting in _ACCESS_SETTINGS}
_PREFIX = "zookeeper."
LEAST_SNAPSHOTS = 3
"""Purging leaves as many, whatever autopurge.snapRetainCount says."""


def _not_empty(value: str) -> str | None:
    # An empty name would be the working directory.
    return None if value else "it must name a directory"


def _peer_type(value: str) -> str | None:
    return one_of("participant", "observer")(value.lower())


ZOO_CFG_DEFINITIONS = Definitions(
    [
        Setting("tickTime", Kind.INT, "3000", "The unit of time, in milliseconds.", at_least(1)),
        Setting(
            "dataDir", Kind.STRING, None, "Where snapshots are, and the log if dataLogDir is not set.", _not_empty, required=True
        ),
        Setting("dataLogDir", Kind.STRING, None, "Where the transaction log is."),
        Setting(
            "clientPort", Kind.INT, None,
            "The port for clients; 0 takes any free one. A server.N line may name it instead.", between(0, 65535),
        ),
        Setting("clientPortAddress", Kind.STRING, "", "The address to listen on; empty for all."),
        Setting("minSessionTimeout", Kind.INT, "-1", "In ms; -1 for two ticks.", at_least(-1)),
        Setting("maxSessionTimeout", Kind.INT, "-1", "In ms; -1 for twenty ticks.", at_least(-1)),
        Setting("maxClientCnxns", Kind.INT, "60", "Connections of one address; 0 or less for no limit."),
        Setting("maxCnxns", Kind.INT, "0", "Connections in all; 0 for no limit.", at_least(0)),
        Setting("4lw.commands.whitelist", Kind.LIST, "srvr", "Four-letter words that are answered; * for all."),
        Setting("snapCount", Kind.INT, "100000", "Transactions between snapshots.", at_least(2)),
        Setting("commitLogCount", Kind.INT, "500", "Recent transactions in memory, for members that come back.", at_least(1)),
        Setting(
            "snapshotSizeFactor", Kind.DOUBLE, "0.33",
            "How much of the log a member that comes back may get, measured by the newest snapshot, before it gets a snapshot instead; "
            "0 for all of the log, negative for none.",
        ),
        Setting(
            "forceSnapshotSync", Kind.BOOLEAN, "false",
            "Whether a leader gives each member a snapshot when it synchronizes, whatever it has: for tests.",
        ),
        Setting(
            "snapSizeLimitInKb", Kind.LONG, "4194304",
            "Kilobytes of transactions between snapshots, if these are reached before snapCount; 0 or less for no limit.",
        ),
        Setting("txnLogSizeLimitInKb", Kind.LONG, "-1", "Kilobytes after which a new log file begins; 0 or less for no limit."),
        Setting("preAllocSize", Kind.INT, "65536", "Kilobytes that a log file is extended by.", at_least(0)),
        Setting("autopurge.snapRetainCount", Kind.INT, "3", "Snapshots that purging leaves, at least 3."),
        Setting("autopurge.purgeInterval", Kind.INT, "0", "Hours between purges; 0 or less for none."),
        Setting("jute.maxbuffer", Kind.INT, "1048575", "Bytes that a request may have.", at_least(1024)),
        Setting(
            "maxWaitingBytes", Kind.LONG, "67108864",
            "Bytes that may wait in memory for all clients together: requests that have not come to their end, and answers that "
            "are not read. Near the limit, clients that stand still are disconnected. Not of ZooKeeper's.", at_least(1048576),
        ),
        Setting(
            "globalOutstandingLimit", Kind.INT, "1000",
            "Requests of all clients that may wait for the log; above it, each client may have one.", at_least(1),
        ),
        Setting(
            "maxMultiOperations", Kind.INT, "1000",
            "Operations that a multi or multiRead may have, which is decided in one step; 0 for no limit. Not of ZooKeeper's.",
            at_least(0),
        ),
        Setting("extendedTypesEnabled", Kind.BOOLEAN, "false", "Whether there may be TTL nodes."),
        Setting(
            "znode.container.checkIntervalMs", Kind.INT, "60000",
            "Ms between looks for container and TTL nodes that are to go.", at_least(1),
        ),
        Setting("znode.container.maxPerMinute", Kind.INT, "10000", "Such nodes that are deleted in a minute.", at_least(1)),
        Setting(
            "znode.container.maxNeverUsedIntervalMs", Kind.LONG, "0",
            "Ms after which a container goes that never had a child; 0 for never.", at_least(0),
        ),
        Setting("forceSync", Kind.STRING, "yes", "Whether the log is synced before an acknowledgement.", one_of("yes", "no")),
        Setting("initLimit", Kind.INT, "0", "Ticks that a follower has to connect to the leader and synchronise.", at_least(0)),
        Setting("syncLimit", Kind.INT, "0", "Ticks that a follower may be behind or silent.", at_least(0)),
        Setting(
            "peerType", Kind.STRING, "participant",
            "Whether this server votes; its server.N line decides.", _peer_type,
        ),
        Setting("electionAlg", Kind.INT, "3", "3, fast leader election, is the only one.", between(3, 3)),
        Setting(
            "standaloneEnabled", Kind.BOOLEAN, "true",
            "Whether one server.N line means a server alone, or an ensemble of one that can grow.",
        ),
        Setting(
            "readonlymode.enabled", Kind.BOOLEAN, "false",
            "Whether a member without a quorum serves reads to clients that accept it.",
        ),
        Setting("dynamicConfigFile", Kind.STRING, None, "The file with the server.N, group.N and weight.N lines."),
        Setting(
            "localSessionsEnabled", Kind.BOOLEAN, "false",
            "Whether a member of an ensemble keeps new sessions to itself, without a write of the leader.",
        ),
        Setting(
            "localSessionsUpgradingEnabled", Kind.BOOLEAN, "false",
            "Whether a local session becomes a global one with its first ephemeral node; otherwise that is refused.",
        ),
        Setting(
            "reconfigEnabled", Kind.BOOLEAN, "false",
            "Whether the ensemble's members can be changed while it runs; the server then writes zoo.cfg and dynamic files.",
        ),
        Setting(
            "quorumListenOnAllIPs", Kind.BOOLEAN, "false",
            "Whether the quorum and election ports listen on all addresses, or on that of the server.N line.",
        ),
        Setting("electionPortBindRetry", Kind.INT, "3", "Tries to open the election port; 0 for no end.", at_least(0)),
        Setting("cnxTimeout", Kind.INT, "5", "Seconds to connect to another server's election port.", at_least(1)),
        Setting(
            "fastleader.minNotificationInterval", Kind.INT, "200",
            "Ms after which votes are sent again; doubled each time.", at_least(10),
        ),
        Setting(
            "fastleader.maxNotificationInterval", Kind.INT, "60000",
            "The longest time in ms between votes that are sent again.", at_least(10),
        ),
        *CLIENT_ACCESS_SETTINGS,
        *OPERATOR_SETTINGS,
        *TLS_SETTINGS,
        *QUORUM_SECURITY_SETTINGS,
        Setting("nio.sessionlessCnxnTimeout", Kind.INT, "10000", "Ms that a connection has to ask for a session.", at_least(1)),
    ]
)  # fmt: skip
"""The settings that work."""

_NO_ENSEMBLE = "this part of an ensemble works in one way"

_WITHOUT_EFFECT = {
    _NO_ENSEMBLE: (
        "connectToLearnerMasterLimit leaderServes syncEnabled tcpKeepAlive observerMasterPort observer.reconnectDelayMs observer.election.DelayMs "
        "quorum.cnxn.threads.size multiAddress.enabled oraclePath "
        "multiAddress.reachabilityCheckTimeoutMs multiAddress.reachabilityCheckEnabled enableEagerACLCheck "
        "learner.asyncSending learner.closeSocketAsync leader.closeSocketAsync "
        "quorumCnxnTimeoutMs commitProcessor.numWorkerThreads "
        "commitProcessor.maxReadBatchSize "
        "commitProcessor.maxCommitBatchSize commitProcessor.shutdownTimeout leader.maxConcurrentSnapSyncs "
        "leader.maxConcurrentDiffSyncs"
    ),
    "the admin server speaks HTTP/1.1": "admin.httpVersion",
    "an ACL entry for a SASL user is for that user alone": "letAnySaslUserDoX",
    "connections, threads and buffers are not those of Java": (
        "clientPortListenBacklog clientTcpKeepAlive serverCnxnFactory nio.numSelectorThreads nio.numWorkerThreads "
        "nio.directBufferBytes nio.shutdownTimeout netty.advancedFlowControl.enabled intBufferStartingSizeBytes "
        "maxResponseCacheSize maxGetChildrenResponseCacheSize watchManagerName watcherCleanThreshold "
        "watcherCleanIntervalInSeconds watcherCleanThreadsNum maxInProcessingDeadWatchers bitHashCacheSize "
        "jvm.pause.monitor jvm.pause.info-threshold.ms jvm.pause.warn-threshold.ms jvm.pause.sleep.time.ms fips-mode"
    ),
    "requests and syncs are grouped as they come": (
        "flushDelay maxWriteQueuePollTime maxBatchSize request_throttle_max_requests request_throttle_stall_time "
        "request_throttle_drop_stale request_stale_connection_check request_stale_latency_check "
        "throttled_op_wait_time largeRequestMaxBytes"
    ),
    "there are no such metrics and warnings": (
        "metricsProvider.exportJvmInfo "
        "fsync.warningthresholdms pathStats.enabled pathStats.slotCapacity pathStats.slotDuration pathStats.maxDepth "
        "pathStats.sampleRate pathStats.initialDelay pathStats.delay pathStats.topPathMax "
        "messageTracker.BufferSize messageTracker.Enabled"
    ),
    "snapshots and logs are always written in one way, with digests, and never for a missing snapshot; compressed ones are read": (
        "snapshot.compression.method snapshot.trust.empty digest.enabled closeSessionTxn.enabled "
        "serializeLastProcessedZxid.enabled emulate353TTLNodes"
    ),
}

ZOO_CFG_WITHOUT_EFFECT: dict[str, str] = {
    name: reason for reason, names in _WITHOUT_EFFECT.items() for name in names.split()
}
"""Settings that are accepted and do nothing, with the reason."""


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """A setting that asks for protection which is missing.

    A name that ends with ``*`` stands for all with its start."""

    name: str
    missing: str
    harmless: frozenset[str] = _HARMLESS

    def matches(self, name: str) -> bool:
        """Whether it is this setting, in whatever case: ZooKeeper ignores another case,
        and would not be protected."""
        own, name = self.name.lower(), name.lower()
        return name.startswith(own[:-1]) if own.endswith("*") else name == own


_AUTHENTICATION = "clients cannot authenticate with Kerberos, and ensembles have no password"
_TLS = "this part of TLS is not supported"
_KERBEROS = "members of an ensemble authenticate each other with DIGEST-MD5 or certificates only"
_THROTTLE = "this limit does not exist"


def _rows(missing: str, *names: str, harmless: Iterable[str] = ()) -> list[RefusedSetting]:
    return [RefusedSetting(name, missing, _HARMLESS | {value.lower() for value in harmless}) for name in names]


ZOO_CFG_REFUSED: list[RefusedSetting] = [
    # No value but a class asks for nothing: ZooKeeper logs one that is not there,
    # and starts without it.
    RefusedSetting(
        "authProvider.*", "the providers are those for digest, ip, sasl and x509",
        frozenset(name.lower() for name in AUTHENTICATION_PROVIDERS),
    ),
    *_rows(
        _AUTHENTICATION,
        "requireKerberosConfig", "kerberos.*", "kinit", "security.auth_to_local", "ensembleAuthName",
    ),
    *_rows(_TLS, "client.portUnification", "ssl.*", "sslQuorumReloadCertFiles"),
    *_rows(_KERBEROS, "quorum.auth.*", harmless=["zkquorum/localhost"]),
    *_rows("the admin server and metrics speak plain HTTP", "admin.portUnification", "admin.forceHttps", "admin.needClientAuth",
           "metricsProvider.ssl.*", "metricsProvider.httpsPort"),
    *_rows(_THROTTLE, "connection_throttle_tokens"),
    *_rows(_THROTTLE, "largeRequestThreshold", harmless=["-1"]),
    RefusedSetting("datadir.autocreate", "missing directories are always made", frozenset(("", "true"))),
    RefusedSetting("db.autocreate", "an empty directory always becomes an empty tree", frozenset(("", "true"))),
]  # fmt: skip
"""Settings that end the start, unless their value is one of the harmless ones."""


def parse_settings(texts: Mapping[str, str]) -> Values:
    """Typed settings from the texts of a zoo.cfg. Raises `ConfigError` for what cannot be used."""
    for given, text in texts.items():
        _refuse_protection(given, text.strip())
    values = ZOO_CFG_DEFINITIONS.parse(_under_one_name(texts))
    low, high = session_timeouts_ms(values)
    if low > high:
        raise ConfigError(f"minSessionTimeout ({low} ms) is above maxSessionTimeout ({high} ms)")
    if values["dynamicConfigFile"] and not any(is_dynamic(name) for name in values.texts):
        raise ConfigError(f"the file {values['dynamicConfigFile']} (dynamicConfigFile) has no server.N lines")
    for port in ("clientPort", "secureClientPort"):
        if values[port] is None and values.is_set(f"{port}Address"):
            raise ConfigError(f"{port}Address is set but {port} is not set: set both, or none")
    quorum = quorum_of(values)
    _check_ports(values, quorum)
    check_quorum_authentication(values)
    check_unused_security(values)
    if is_distributed(values, quorum):
        for name in ("initLimit", "syncLimit"):
            if not values[name]:
                raise ConfigError(
                    f"{name} is not set, and a member of an ensemble needs it (in ticks, for instance {name}=5)"
                )
    return values


def _under_one_name(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts by the names without ``zookeeper.``."""
    found: dict[str, str] = {}
    for given, text in texts.items():
        name = given.removeprefix(_PREFIX)
        if found.setdefault(name, text) != text:
            raise ConfigError(f"{name} and {_PREFIX}{name} are one setting and have two values: remove one")
    return found


def _check_ports(values: Values, quorum: QuorumConfiguration | None) -> None:
    """A server that no client can reach is a mistake in the file, of a server alone
    before it knows its id."""
    if is_distributed(values, quorum) or values["clientPort"] is not None or values["secureClientPort"] is not None:
        return
    if quorum is None or not any(server.client for server in quorum.servers.values()):
        raise ConfigError('Missing required configuration "clientPort" which has no default value.')


def quorum_of(values: Values) -> QuorumConfiguration | None:
    """What the ``server.N`` lines describe, also those of a server alone.

    None without such lines."""
    lines = {name: text for name, text in values.texts.items() if is_dynamic(name)}
    if not lines:
        if not values["standaloneEnabled"]:
            raise ConfigError(
                "standaloneEnabled is false, and no server.N line names a participant: add the lines, or remove it"
            )
        return None
    if "version" in values.texts:
        lines["version"] = values.texts["version"]
    quorum = QuorumConfiguration.parse(lines)
    if not quorum.voters:
        raise ConfigError(
            "the configuration names observers without a participant: give one server the role participant"
        )
    if quorum.observers and not is_distributed(values, quorum):
        raise ConfigError(
            "the configuration names one participant with observers: set standaloneEnabled=false, or add participants"
        )
    return quorum


def is_distributed(values: Values, quorum: QuorumConfiguration | None) -> bool:
    """Whether the server is a member of an ensemble: one voter means a server alone, unless
    standaloneEnabled is false."""
    return quorum is not None and (len(quorum.voters) > 1 or not values["standaloneEnabled"])


def ensemble_of(values: Values) -> QuorumConfiguration | None:
    """The ensemble that the ``server.N`` lines describe; None for a server alone."""
    quorum = quorum_of(values)
    return quorum if is_distributed(values, quorum) else None


def _refuse_protection(given: str, text: str) -> None:
    name = given.removeprefix(_PREFIX)
    meant = _ACCESS_BY_LOWER.get(name.lower(), name)
    if name != meant:
        raise ConfigError(f"{given} is unknown, and {meant} says who has access: write {meant}")
    for row in ZOO_CFG_REFUSED:
        if name not in ZOO_CFG_DEFINITIONS and row.matches(name) and text.lower() not in row.harmless:
            raise ConfigError(
                f"{given} is set to a value that asks for protection, and this version does not have it: {row.missing}. "
                f"Remove {given} to start without this protection, and protect the server by other means, such as a "
                "firewall or a private network; or run Apache ZooKeeper"
            )


def ineffective_lines(values: Values) -> list[str]:
    """A line for each setting that was given and does nothing."""
    lines = []
    for name in sorted(values.unknown()):
        if is_dynamic(name) or name == "version":
            continue  # the ensemble's
        if any(row.matches(name) for row in ZOO_CFG_REFUSED):
            continue  # its value asks for no protection
        reason = ZOO_CFG_WITHOUT_EFFECT.get(name)
        lines.append(f"{name} has no effect: {reason}" if reason else f"{name} is unknown and has no effect")
    is_member = ensemble_of(values) is not None
    return lines + [
        f"{name} has no effect: {reason}"
        for name, reason in sorted(unused_security(values, is_member=is_member).items())
    ]


def session_timeouts_ms(values: Values) -> tuple[int, int]:
    """The least and the greatest timeout that a session may have."""
    tick_ms = values["tickTime"]
    low, high = values["minSessionTimeout"], values["maxSessionTimeout"]
    return low if low >= 0 else 2 * tick_ms, high if high >= 0 else 20 * tick_ms

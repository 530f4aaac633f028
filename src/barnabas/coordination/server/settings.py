"""The settings of a coordination server: one table of ZooKeeper's names, and what each does here.

ZooKeeper reads some of them from ``zoo.cfg`` and others as Java system properties (``zookeeper.snapCount``); in zoo.cfg
these may be written without ``zookeeper.``. Here both spellings mean the same. In ZooKeeper: QuorumPeerConfig and
ServerConfig.

A setting works, or it has no effect (and the start says so), or it asks for protection that this version does not have.
In the last case the server does not start: it would look protected and be open. A name that is not in the table is
reported. Parsing, warnings and ``docs/reference/configuration.md`` all come from the table.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, Kind, Setting, Values, at_least, between, one_of

__all__ = [
    "ZOO_CFG_DEFINITIONS",
    "ZOO_CFG_PROTECTIVE",
    "ZOO_CFG_WITHOUT_EFFECT",
    "Protective",
    "ineffective_lines",
    "parse_settings",
    "session_timeouts_ms",
]

_SERVER = re.compile(r"server\.\d+")
_HARMLESS = frozenset(("", "false", "no", "none", "0"))
_PREFIX = "zookeeper."


def _not_empty(value: str) -> str | None:
    return None if value else "it must name a directory"  # an empty name would be the working directory


ZOO_CFG_DEFINITIONS = Definitions(
    [
        Setting("tickTime", Kind.INT, "3000", "The unit of time, in milliseconds.", at_least(1)),
        Setting(
            "dataDir", Kind.STRING, None, "Where snapshots are, and the log if dataLogDir is not set.", _not_empty, required=True
        ),
        Setting("dataLogDir", Kind.STRING, None, "Where the transaction log is."),
        Setting("clientPort", Kind.INT, None, "The port for clients; 0 takes any free one.", between(0, 65535), required=True),
        Setting("clientPortAddress", Kind.STRING, "", "The address to listen on; empty for all."),
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
        Setting(
            "globalOutstandingLimit", Kind.INT, "1000",
            "Requests of all clients that may wait for the log; above it, each client may have one.", at_least(1),
        ),
        Setting("extendedTypesEnabled", Kind.BOOLEAN, "false", "Whether there may be TTL nodes."),
        Setting("forceSync", Kind.STRING, "yes", "Whether the log is synced before an acknowledgement.", one_of("yes", "no")),
        Setting("nio.sessionlessCnxnTimeout", Kind.INT, "10000", "Ms that a connection has to ask for a session.", at_least(1)),
    ]
)  # fmt: skip
"""The settings that work."""

_NO_ENSEMBLE = "there is no ensemble in this version"
_ADMIN_SERVER = "there is no admin server; the four-letter words say what it would"
_NO_SUPERUSER = "there is no superuser; ACLs hold for all clients"

_INERT = {
    _NO_ENSEMBLE: (
        "initLimit syncLimit connectToLearnerMasterLimit electionAlg leaderServes cnxTimeout peerType "
        "quorumListenOnAllIPs syncEnabled standaloneEnabled reconfigEnabled electionPortBindRetry tcpKeepAlive "
        "observerMasterPort observer.reconnectDelayMs observer.election.DelayMs localSessionsEnabled "
        "localSessionsUpgradingEnabled quorum.cnxn.threads.size multiAddress.enabled oraclePath "
        "multiAddress.reachabilityCheckTimeoutMs multiAddress.reachabilityCheckEnabled enableEagerACLCheck "
        "learner.asyncSending learner.closeSocketAsync leader.closeSocketAsync commitLogCount snapshotSizeFactor "
        "forceSnapshotSync readonlymode.enabled quorumCnxnTimeoutMs fastleader.minNotificationInterval "
        "fastleader.maxNotificationInterval commitProcessor.numWorkerThreads commitProcessor.maxReadBatchSize "
        "commitProcessor.maxCommitBatchSize commitProcessor.shutdownTimeout leader.maxConcurrentSnapSyncs "
        "leader.maxConcurrentDiffSyncs"
    ),
    _ADMIN_SERVER: (
        "admin.enableServer admin.serverAddress admin.serverPort admin.idleTimeout admin.commandURL admin.httpVersion "
        "admin.portUnification admin.forceHttps admin.needClientAuth"
    ),
    _NO_SUPERUSER: (
        "DigestAuthenticationProvider.superDigest X509AuthenticationProvider.superUser superUser "
        "SASLAuthenticationProvider.superPassword letAnySaslUserDoX"
    ),
    "ACLs are always checked": "skipACL",
    "SASL clients are always refused": "allowSaslFailedClients",
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
        "metricsProvider.className metricsProvider.httpHost metricsProvider.httpPort metricsProvider.exportJvmInfo "
        "fsync.warningthresholdms pathStats.enabled pathStats.slotCapacity pathStats.slotDuration pathStats.maxDepth "
        "pathStats.sampleRate pathStats.initialDelay pathStats.delay pathStats.topPathMax audit.impl.class "
        "messageTracker.BufferSize messageTracker.Enabled"
    ),
    "snapshots and logs are always written in one way, with digests, and never for a missing snapshot": (
        "snapshot.compression.method snapshot.trust.empty digest.enabled closeSessionTxn.enabled "
        "serializeLastProcessedZxid.enabled txnLogSizeLimitInKb snapSizeLimitInKb emulate353TTLNodes"
    ),
}

ZOO_CFG_WITHOUT_EFFECT: dict[str, str] = {name: reason for reason, names in _INERT.items() for name in names.split()}
"""Settings that are accepted and do nothing, with the reason."""


@dataclass(frozen=True, slots=True)
class Protective:
    """A setting that asks for protection which is missing; a name that ends with ``*`` stands for all with its start."""

    name: str
    missing: str
    harmless: frozenset[str] = _HARMLESS

    def matches(self, name: str) -> bool:
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name


_AUTHENTICATION = "clients are not required to authenticate, and only digest and ip identities exist"
_TLS = "connections are not encrypted"
_QUORUM = "there is no ensemble whose members could authenticate"
_THROTTLE = "this limit does not exist"


def _rows(missing: str, *names: str, harmless: Sequence[str] = ()) -> list[Protective]:
    return [Protective(name, missing, _HARMLESS | {value.lower() for value in harmless}) for name in names]


ZOO_CFG_PROTECTIVE: list[Protective] = [
    *_rows(
        _AUTHENTICATION,
        "authProvider.*", "requireClientAuthScheme", "sessionRequireClientSASLAuth", "enforce.auth.*",
        "requireKerberosConfig", "kerberos.*", "kinit", "security.auth_to_local", "ensembleAuthName",
    ),
    *_rows(_AUTHENTICATION, "sasl.serverconfig", harmless=["Server"]),
    Protective("DigestAuthenticationProvider.enabled", "the digest scheme cannot be switched off", frozenset(("", "true"))),
    *_rows("digests are SHA-1", "DigestAuthenticationProvider.digestAlg", harmless=["SHA1"]),
    *_rows(_TLS, "secureClientPort", "secureClientPortAddress", "client.portUnification", "ssl.*", "sslQuorum",
           "sslQuorumReloadCertFiles", "portUnification"),
    *_rows(_QUORUM, "quorum.auth.*", harmless=["QuorumServer", "QuorumLearner", "zkquorum/localhost"]),
    *_rows("quotas are counted and not enforced", "enforceQuota"),
    *_rows("there is no audit log", "audit.enable"),
    *_rows(_THROTTLE, "connection_throttle_tokens"),
    *_rows(_THROTTLE, "largeRequestThreshold", harmless=["-1"]),
    Protective("datadir.autocreate", "missing directories are always made", frozenset(("", "true"))),
    Protective("db.autocreate", "an empty directory always becomes an empty tree", frozenset(("", "true"))),
    *_rows("members of an ensemble are not supported yet", "dynamicConfigFile"),
]  # fmt: skip
"""Settings that end the start, unless their value is one of the harmless ones."""


def parse_settings(texts: Mapping[str, str]) -> Values:
    """Typed settings from the texts of a zoo.cfg. Raises `ConfigError` for what cannot be used.

    One ``server.N`` line means a server alone, as in ZooKeeper; several would be an ensemble.
    """
    for given, text in texts.items():
        _refuse_protection(given, text.strip())
    texts = {name.removeprefix(_PREFIX): text for name, text in texts.items()}
    servers = sorted(name for name in texts if _SERVER.fullmatch(name))
    if len(servers) > 1:
        raise ConfigError(
            f"ensembles are not supported yet, and the configuration names {len(servers)} servers "
            f"({', '.join(servers)}): remove these lines to run one server alone"
        )
    values = ZOO_CFG_DEFINITIONS.parse({name: text for name, text in texts.items() if name not in servers})
    low, high = session_timeouts_ms(values)
    if low > high:
        raise ConfigError(f"minSessionTimeout ({low} ms) is above maxSessionTimeout ({high} ms)")
    return values


def _refuse_protection(given: str, text: str) -> None:
    name = given.removeprefix(_PREFIX)
    for row in ZOO_CFG_PROTECTIVE:
        if row.matches(name) and text.lower() not in row.harmless:
            raise ConfigError(
                f"{given} is set to a value that asks for protection, and this version does not have it: {row.missing}. "
                f"Remove {given} to start without this protection, and protect the server by other means, such as a "
                "firewall or a private network; or run Apache ZooKeeper"
            )


def ineffective_lines(values: Values) -> list[str]:
    """A line for each setting that was given and does nothing."""
    lines = []
    for name in sorted(values.unknown()):
        if any(row.matches(name) for row in ZOO_CFG_PROTECTIVE):
            continue  # its value asks for no protection
        reason = ZOO_CFG_WITHOUT_EFFECT.get(name)
        lines.append(f"{name} has no effect: {reason}" if reason else f"{name} is unknown and has no effect")
    return lines


def session_timeouts_ms(values: Values) -> tuple[int, int]:
    """The least and the greatest time-out that a session may have."""
    tick_ms = values["tickTime"]
    low, high = values["minSessionTimeout"], values["maxSessionTimeout"]
    return low if low >= 0 else 2 * tick_ms, high if high >= 0 else 20 * tick_ms

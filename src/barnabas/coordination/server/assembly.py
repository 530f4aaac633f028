"""What a server is made of, by its settings: limits for clients, and the parts of a
member of an ensemble.

In ZooKeeper: QuorumPeerMain.runFromConfig.
"""

import logging
from collections.abc import Callable
from functools import partial

from barnabas.base.clock import Clock
from barnabas.base.errors import ConfigError
from barnabas.base.files import Files
from barnabas.base.network import Network
from barnabas.base.randomness import Random
from barnabas.base.settings import Values
from barnabas.base.tasks import Runner
from barnabas.coordination.core.audit import AuditLog
from barnabas.coordination.core.connections import Limits
from barnabas.coordination.core.local_sessions import LocalSessions
from barnabas.coordination.election.fast_leader_election import FastLeaderElection
from barnabas.coordination.election.peers import ElectionPeers
from barnabas.coordination.quorum.authentication import QuorumAuthentication
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.configuration_files import ConfigurationFiles
from barnabas.coordination.server.authentication import access_rules
from barnabas.coordination.server.peer_config import PeerConfig, own_server
from barnabas.coordination.server.quorum_security import quorum_authentication, quorum_tls_options
from barnabas.coordination.server.settings import session_timeouts_ms
from barnabas.coordination.storage.storage import Storage
from barnabas.coordination.zab.configurations import Configurations
from barnabas.coordination.zab.leader import Timing
from barnabas.coordination.zab.member import EnsembleMember
from barnabas.coordination.zab.member_log import ClientService

__all__ = ["MemberAssembly", "client_limits", "read_text"]

audit_logger = logging.getLogger("barnabas.audit")
_MIN_PACKET_BYTES = 16 << 20  # a ping may carry a million sessions


def read_text(files: Files, path: str) -> str:
    """A text file."""
    return files.read(path).decode()


def client_limits(settings: Values, files: Files, rng: Random, user: str, *, is_member: bool) -> Limits:
    """What clients of a server alone or of a member may do.

    ``user`` runs the server's process; it is for the audit log."""
    low, high = session_timeouts_ms(settings)
    return Limits(
        min_session_timeout_ms=low,
        max_session_timeout_ms=high,
        global_outstanding=settings["globalOutstandingLimit"],
        max_reply_bytes=4 * settings["jute.maxbuffer"],
        max_multi_operations=settings["maxMultiOperations"] or None,
        ttl_nodes=settings["extendedTypesEnabled"],
        enforce_quota=settings["enforceQuota"],
        local_sessions=LocalSessions(settings["tickTime"], settings["localSessionsUpgradingEnabled"])
        if settings["localSessionsEnabled"] and is_member
        else None,
        access=access_rules(settings, partial(read_text, files), rng.randbytes),
        auditor=AuditLog(audit_logger.info, user) if settings["audit.enable"] else None,
    )


def _configuration_files(files: Files, config_path: str | None) -> ConfigurationFiles:
    """The files that a reconfiguration writes."""
    if config_path is None:
        raise ConfigError("reconfigEnabled is set, and there is no zoo.cfg that a reconfiguration could change")
    return ConfigurationFiles(files, config_path)


class MemberAssembly:
    """Makes the parts of a member. Raises `ConfigError` where the settings cannot be."""

    def __init__(
        self,
        settings: Values,
        config: PeerConfig,
        config_path: str | None,
        files: Files,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._settings = settings
        self._files = files
        self._clock = clock
        self._rng = rng
        assert config.ensemble is not None, "the server is alone"
        self.my_id = own_server(settings, config).id
        can_reconfigure = settings["reconfigEnabled"]
        self._configurations = Configurations(
            self.my_id, config.ensemble, _configuration_files(files, config_path) if can_reconfigure else None
        )
        self._configurations.load()

    def member(self, limits: Limits, storage: Storage, service: ClientService, runner: Runner) -> EnsembleMember:
        """The member, whichever role it has."""
        settings = self._settings
        member = EnsembleMember(
            self.my_id,
            self._configurations,
            Timing(settings["tickTime"], settings["initLimit"], settings["syncLimit"]),
            limits,
            storage,
            service,
            runner,
            now_ms=self._clock.monotonic_ms,
            wall_ms=self._clock.wall_ms,
            max_packet_bytes=max(4 * settings["jute.maxbuffer"], _MIN_PACKET_BYTES),
        )
        member.least_voters = 2 if settings["standaloneEnabled"] else 1
        member.commit_log_count = settings["commitLogCount"]
        member.snapshot_size_factor = settings["snapshotSizeFactor"]
        member.forces_snapshots = settings["forceSnapshotSync"]
        return member

    def quorum_network(self) -> Network | None:
        """How members connect to each other, if not as clients do without TLS."""
        options = quorum_tls_options(self._settings, partial(read_text, self._files))
        if options is None:
            return None
        from barnabas.net.unified import quorum_network

        return quorum_network(options, self._configurations.hosts)

    def authentication(self) -> QuorumAuthentication | None:
        """How members prove who they are with SASL."""
        return quorum_authentication(self._settings, partial(read_text, self._files), self._rng.randbytes)

    def election_peers(
        self,
        member: EnsembleMember,
        network: Network,
        authentication: QuorumAuthentication | None,
        on_configuration: Callable[[QuorumConfiguration], None],
    ) -> ElectionPeers:
        """This server's part in elections."""
        settings, configurations = self._settings, member.configurations
        election = FastLeaderElection(
            member.my_id,
            member.configuration,
            following=configurations.following,
            can_reconfigure=configurations.can_reconfigure,
            min_interval_ms=settings["fastleader.minNotificationInterval"],
            max_interval_ms=settings["fastleader.maxNotificationInterval"],
        )
        return ElectionPeers(
            election,
            network=network,
            clock=self._clock,
            on_configuration=on_configuration,
            listens_on_all=settings["quorumListenOnAllIPs"],
            connect_timeout_ms=settings["cnxTimeout"] * 1000,
            bind_tries=settings["electionPortBindRetry"],
            can_reconfigure=configurations.can_reconfigure,
            authentication=authentication,
        )

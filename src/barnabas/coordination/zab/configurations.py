"""The configuration of the ensemble as a member knows it: the one in force, and the
one that is proposed.

A configuration is *seen* when a reconfiguration is proposed, and *active* when it is committed.
While one is seen and not active, elections and commits need a quorum of both. Without
``reconfigEnabled`` the configuration of zoo.cfg stays.

In ZooKeeper: `QuorumPeer.quorumVerifier` and `lastSeenQuorumVerifier`,
`processReconfig` and `reconfigFlag`.
"""

import logging
from collections.abc import Callable

from barnabas.base.errors import ConfigError
from barnabas.coordination.quorum.configuration import QuorumConfiguration, parse_dynamic_text
from barnabas.coordination.quorum.configuration_files import ConfigurationFiles
from barnabas.coordination.quorum.members import QuorumServer
from barnabas.wire.jute.codec import MalformedRecordError

__all__ = ["Configurations", "parse_configuration"]

logger = logging.getLogger(__name__)


def parse_configuration(text: bytes) -> QuorumConfiguration:
    """The configuration in a packet. Raises `MalformedRecordError`."""
    try:
        return parse_dynamic_text(text.decode())
    except (ConfigError, UnicodeDecodeError) as error:
        raise MalformedRecordError(f"the configuration of the ensemble cannot be read: {error}") from None


class Configurations:
    """See the module."""

    def __init__(self, my_id: int, current: QuorumConfiguration, files: ConfigurationFiles | None) -> None:
        """``files`` is None without reconfigEnabled."""
        self.current = current
        self.following: QuorumConfiguration | None = None
        """One that is newer than the current one, and proposed."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when either has changed."""
        self.is_observer = my_id in current.observers
        """Whether this server has no vote; one that the configuration does not name
        follows as if it had."""
        self._my_id = my_id
        self._files = files
        mine = current.servers.get(my_id)
        self._keeps_client_port = mine is None or mine.client is None
        self._suggested_leader: int | None = None

    @property
    def can_reconfigure(self) -> bool:
        """Whether the members can change while the server runs."""
        return self._files is not None

    def load(self) -> None:
        """Read what was proposed before a restart, and keep a copy of a zoo.cfg that
        will change."""
        if self._files is not None:
            self._files.back_up()
            following = self._files.read_next()
            if following is not None and following.version > self.current.version:
                self.following = following

    def server(self, server_id: int) -> QuorumServer | None:
        """A member by its id, of either configuration."""
        found = self.current.servers.get(server_id)
        return self.following.servers.get(server_id) if found is None and self.following is not None else found

    def hosts(self) -> set[str]:
        """The hosts of all members, of both configurations."""
        both = (self.current,) if self.following is None else (self.current, self.following)
        return {server.host for configuration in both for server in configuration.servers.values()}

    def take_suggested_leader(self) -> int | None:
        """The leader that a reconfiguration has designated for the next role, if there is one."""
        leader_id, self._suggested_leader = self._suggested_leader, None
        return leader_id

    def see(self, configuration: QuorumConfiguration) -> None:
        """A configuration is proposed, or the last one proposed by this leader.

        Durable at return."""
        if self._files is None:
            return
        following = configuration if configuration.version > self.current.version else None
        if following == self.following:
            return
        if following is not None:
            self._files.write_next(following)
        else:
            self._files.remove_next()
        self.following = following
        self.on_change()

    def adopt_version(self, configuration: QuorumConfiguration) -> None:
        """Use the same members under a newer version, which is not kept: there is no
        reconfigEnabled."""
        self.current = configuration

    def activate(
        self, configuration: QuorumConfiguration, leader_id: int | None, present_leader_id: int | None
    ) -> bool:
        """A configuration is in force, under a leader that the present one may designate.

        Durable at return. Returns whether the role must end: this server has another role from
        now on, or another leader.
        """
        before = self.current
        if self._files is None or configuration.version <= before.version:
            return False
        self._files.activate(configuration, keeps_client_port=self._keeps_client_port)
        self.current = configuration
        if self.following is not None and self.following.version <= configuration.version:
            self.following = None
            self._files.remove_next()
        self.on_change()
        if configuration.has_members_of(before):
            return False
        return self._has_new_role(before, leader_id, present_leader_id)

    def _has_new_role(self, before: QuorumConfiguration, leader_id: int | None, present_leader_id: int | None) -> bool:
        was_observer = self.is_observer
        self.is_observer = self._my_id in self.current.observers
        role_changes = self.is_observer != was_observer
        if role_changes:
            logger.info("Becoming %s", self._role())
        if leader_id is None:
            old, new = (each.servers.get(present_leader_id or 0) for each in (before, self.current))
            is_voter = present_leader_id in self.current.voters
            stays = is_voter and old is not None and new is not None and old.quorum_address == new.quorum_address
            return role_changes or not stays
        leader_changes = leader_id != present_leader_id
        if leader_changes:
            logger.warning("Suggested leader: %d", leader_id)
        if role_changes or leader_changes:
            self._suggested_leader = leader_id
        return role_changes or leader_changes

    def _role(self) -> str:
        if self._my_id in self.current.observers:
            return "an observer"
        return "a voting participant" if self._my_id in self.current.voters else "a non-voting participant"

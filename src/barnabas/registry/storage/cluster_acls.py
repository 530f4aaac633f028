"""`ClusterAcls`: the cluster's access control lists, read from its brokers again and again, for
deciding what a user of the registry may do.

A change counts within some seconds. While no broker answers, the lists that were read last stand,
as they do on a broker. Where brokers refuse to show them, only super users may do anything.

Confluent's registry has lists of its own instead (its ACL authorizer).

In Confluent's registry: its ACL authorizer, with lists of its own.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Mapping

from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.client.admin.acl_options import binding_of_acl
from barnabas.client.admin.acls import AclFilter, describe_acls
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError, ConfigurationError, ConnectError, RefusedError
from barnabas.security.acls import AccessControlEntry, ResourcePattern

__all__ = ["ClusterAcls"]

logger = logging.getLogger(__name__)

_INTERVAL_S = 3.0


class ClusterAcls:
    """From `start` to `close`, on one event loop."""

    def __init__(self, servers: str, properties: Mapping[str, str], super_users: frozenset[str]) -> None:
        """``super_users`` are principals, as ``User:ann``."""
        self._servers = servers
        self._properties = properties
        self._super_users = super_users
        self.authorizer = Authorizer(super_users)
        """What follows of the lists; another one after each change."""
        self._entries: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the lists. Raises `ClientError` where they cannot be read."""
        await self._load()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _load(self) -> None:
        entries = await asyncio.to_thread(self._read)
        if entries != self._entries:
            self._entries = entries
            made = Authorizer(self._super_users)
            for pattern, found in entries.items():
                made.update(pattern, VersionedAcls(found, 0))
            self.authorizer = made

    def _read(self) -> dict[ResourcePattern, frozenset[AccessControlEntry]]:
        with AdminConnection(self._servers, self._properties) as connection:
            found = describe_acls(connection, AclFilter())
        entries: defaultdict[ResourcePattern, set[AccessControlEntry]] = defaultdict(set)
        for acl in found:
            # What is not known here is of newer brokers, and of no resource of the registry.
            with contextlib.suppress(ConfigurationError):
                binding = binding_of_acl(acl)
                entries[binding.pattern].add(binding.entry)
        return {pattern: frozenset(each) for pattern, each in entries.items()}

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            try:
                await self._load()
            except ConnectError as error:
                logger.info("access control lists: %s", error)
            except (ClientError, RefusedError, OSError) as error:
                logger.warning("access control lists cannot be read, so only super users may do anything: %s", error)
                self._entries = {}
                self.authorizer = Authorizer(self._super_users)

    async def close(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

"""One node of the tree, as a value: ZooKeeper's DataNode.

A change makes a new `DataNode` and leaves the old one as it was. So a snapshot keeps the
nodes of its moment while the tree changes, and a transaction can be prepared on top of others
that are not committed yet.

A node's digest is the CRC-32 of its path, data and stat; the sum of all (modulo 2**64) is the
tree's digest, which follows every transaction in the log and ends every snapshot, as in ZooKeeper
since 3.6 (DigestCalculator).
"""

import struct
from dataclasses import dataclass
from zlib import crc32

from barnabas.wire.jute.opcodes import CONTAINER_OWNER
from barnabas.wire.jute.records import ACL, OPEN_ACL, Stat

__all__ = ["DIGEST_VERSION", "MAX_TTL_MS", "DataNode", "as_int", "owner_of_ttl", "ttl_of_owner"]

DIGEST_VERSION = 2
MAX_TTL_MS = (1 << 40) - 1

_pack = struct.Struct(">qqqqqiiiq").pack
"""Packs czxid, mzxid, pzxid, ctime, mtime, version, cversion, aversion, owner."""
_TTL_OWNER = -(1 << 56)  # 0xff in the highest byte; 40 bits hold the milliseconds
_INT_SIGN = 1 << 31
_new_node = object.__new__
"""Makes a node whose attributes follow: a call with all of them costs half as much again, and each
write makes one or two nodes."""


def owner_of_ttl(ttl_ms: int) -> int:
    """The ``ephemeral_owner`` of a node that is deleted when it has been empty and
    unchanged for this long."""
    return _TTL_OWNER | ttl_ms


def ttl_of_owner(owner: int) -> int | None:
    """The milliseconds of a TTL node's ``ephemeral_owner``; None for other owners."""
    if owner >= 0 or owner < _TTL_OWNER:
        return None
    return owner & MAX_TTL_MS


def as_int(value: int) -> int:
    """A 32-bit counter that wraps as Java's."""
    return (value + _INT_SIGN & 0xFFFFFFFF) - _INT_SIGN


def _digest(path: str, data: bytes | None, stat: bytes) -> int:
    """`DataNode.compute_digest`, of a node that is about to be made."""
    if path.startswith("/zookeeper/"):
        return 0
    crc = crc32(path.encode()) if path != "/" else 0
    if data:
        crc = crc32(data, crc)
    return crc32(stat, crc)


@dataclass(slots=True, eq=False, repr=False)
class DataNode:
    """Data, access control list, and the fields of a `Stat`.

    ``cversion`` counts the creations of children."""

    data: bytes | None
    acl: tuple[ACL, ...]
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    pzxid: int
    num_children: int
    digest: int

    @classmethod
    def new(
        cls, path: str, data: bytes | None, acl: tuple[ACL, ...], owner: int, zxid: int, time_ms: int
    ) -> "DataNode":
        """A node that was just created."""
        node = _new_node(cls)
        node.data, node.acl, node.owner = data, acl, owner
        node.czxid = node.mzxid = node.pzxid = zxid
        node.ctime = node.mtime = time_ms
        node.version = node.cversion = node.aversion = node.num_children = 0
        node.digest = _digest(path, data, _pack(zxid, zxid, zxid, time_ms, time_ms, 0, 0, 0, owner))
        return node

    @classmethod
    def system(cls, path: str, num_children: int, acl: tuple[ACL, ...] = OPEN_ACL, aversion: int = 0) -> "DataNode":
        """A node that every tree has from the beginning."""
        node = cls(b"", acl, 0, 0, 0, 0, 0, 0, aversion, 0, 0, num_children, 0)
        node.digest = node.compute_digest(path)
        return node

    def compute_digest(self, path: str) -> int:
        """The node's part of the tree's digest.

        0 below ``/zookeeper``, where quotas change without transactions."""
        stat = _pack(
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            self.aversion,
            self.owner,
        )
        return _digest(path, self.data, stat)

    def copy(self) -> "DataNode":
        """An equal node, which the caller changes before it is used anywhere else."""
        return DataNode(
            self.data,
            self.acl,
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            self.aversion,
            self.owner,
            self.pzxid,
            self.num_children,
            self.digest,
        )

    def with_data(self, path: str, data: bytes | None, version: int, zxid: int, time_ms: int) -> "DataNode":
        """The node after setData."""
        node = _new_node(DataNode)
        czxid = node.czxid = self.czxid
        ctime = node.ctime = self.ctime
        cversion = node.cversion = self.cversion
        aversion = node.aversion = self.aversion
        owner = node.owner = self.owner
        pzxid = node.pzxid = self.pzxid
        node.data, node.acl, node.num_children = data, self.acl, self.num_children
        node.mzxid, node.mtime, node.version = zxid, time_ms, version
        node.digest = _digest(path, data, _pack(czxid, zxid, pzxid, ctime, time_ms, version, cversion, aversion, owner))
        return node

    def with_acl(self, path: str, acl: tuple[ACL, ...], aversion: int) -> "DataNode":
        """The node after setACL."""
        node = self.copy()
        node.acl = acl
        node.aversion = aversion
        node.digest = node.compute_digest(path)
        return node

    def with_children(self, path: str, cversion: int, pzxid: int, num_children: int) -> "DataNode":
        """The node after a child was created or deleted."""
        node = _new_node(DataNode)
        data = node.data = self.data
        czxid = node.czxid = self.czxid
        mzxid = node.mzxid = self.mzxid
        ctime = node.ctime = self.ctime
        mtime = node.mtime = self.mtime
        version = node.version = self.version
        aversion = node.aversion = self.aversion
        owner = node.owner = self.owner
        node.acl, node.cversion, node.pzxid, node.num_children = self.acl, cversion, pzxid, num_children
        node.digest = _digest(path, data, _pack(czxid, mzxid, pzxid, ctime, mtime, version, cversion, aversion, owner))
        return node

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node belongs to a session, and therefore cannot have children."""
        return self.owner != 0 and self.owner != CONTAINER_OWNER and not _TTL_OWNER <= self.owner < 0

    @property
    def is_container(self) -> bool:
        return self.owner == CONTAINER_OWNER

    @property
    def ttl_ms(self) -> int | None:
        return ttl_of_owner(self.owner)

    def stat(self) -> Stat:
        """The stat for clients: its cversion counts creations and deletions, its
        owner is a session or 0."""
        data = self.data
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            as_int(self.cversion * 2 - self.num_children),
            self.aversion,
            self.owner if self.owner and self.is_ephemeral else 0,
            0 if data is None else len(data),
            self.num_children,
            self.pzxid,
        )

    def __repr__(self) -> str:
        return f"Znode(data={self.data!r}, {self.stat()})"

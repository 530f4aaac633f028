"""The tree as it will be: what is decided and not committed, and the parts of a multi.

    Tree <── Staged, all proposed transactions <── Parts, those of one transaction

Both are views that the operations decide on. In ZooKeeper: `outstandingChanges` and the
`ChangeRecord`s of ZooKeeperServer and PrepRequestProcessor.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence

from barnabas.coordination.core.changes import Change, MultiChange, SessionChange
from barnabas.coordination.core.tree import Tree, View
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import ACL

__all__ = ["Parts", "Staged"]

_DIGEST_MASK = (1 << 64) - 1


class Staged:
    """The tree as it will be when all proposed transactions are committed: ZooKeeper's outstanding
    change records.

    A change stays here until its transaction is committed; a later change of the same path stays
    longer.
    """

    __slots__ = ("_changes", "_nodes", "_owned", "_tree", "digest_sum", "layers", "with_children")

    def __init__(self, tree: Tree) -> None:
        self.with_children = DataNode.with_children
        self._tree = tree
        self._nodes = tree.nodes
        self._changes: dict[str, Change] = {}
        """The latest change of each path, as a node's or as a parent's."""
        self.layers = self._changes, self._nodes
        self._owned: dict[int, dict[str, int]] = {}
        """By owner: paths at which changes that are not committed make a node of theirs, and how
        many of these changes."""
        self.digest_sum = tree.digest

    @property
    def paths(self) -> Iterable[str]:
        """The paths that are changed."""
        return self._changes.keys()

    @property
    def digest(self) -> int:
        """The digest after all staged transactions, as a signed 64-bit number."""
        value = self.digest_sum & _DIGEST_MASK
        return value - (1 << 64) if value >> 63 else value

    def get(self, path: str) -> DataNode | None:
        change = self._changes.get(path)
        if change is None:
            return self._nodes.get(path)
        return change.node if change.path == path else change.parent

    def get_all(self, paths: list[str]) -> list[DataNode | None]:
        if self._changes.keys().isdisjoint(paths):
            return self._tree.get_all(paths)
        return list(map(self.get, paths))

    def intern(self, acl: Iterable[ACL] | None) -> tuple[ACL, ...]:
        return self._tree.intern(acl)

    def ephemerals_of(self, session_id: int) -> dict[str, None]:
        paths, changed = self._tree.ephemerals_of(session_id), self._changes
        # A node belongs to its creator for ever.
        paths.update(dict.fromkeys(self._owned.get(session_id, ())))
        if changed.keys().isdisjoint(paths):
            return paths
        return {path: None for path in paths if path not in changed or _owner_of(self.get(path)) == session_id}

    def add(self, change: Change) -> None:
        """Stage what was decided for a transaction."""
        path, node, changes = change.path, change.node, self._changes
        self.digest_sum += change.digest
        if not path:
            self._add_parts(change)
            return
        if node is not change.before:
            changes[path] = change
        if change.parent is not None:
            changes[change.parent_path] = change
        if node is not None and node.owner and change.before is None:
            self._own(path, node.owner)

    def _add_parts(self, change: Change) -> None:
        if isinstance(change, MultiChange):
            self._changes.update(change.latest)
            for part in change.owned:
                assert part.node is not None
                self._own(part.path, part.node.owner)
        elif isinstance(change, SessionChange):
            for part in change.parts:
                self.add(part)
            self._changes.update(dict.fromkeys(change.gone, change))

    def settle(self, change: Change) -> None:
        """What was staged for a transaction is in the tree; later changes of its paths stay."""
        path, node, changes = change.path, change.node, self._changes
        if not path:
            self._settle_parts(change)
            return
        if changes.get(path) is change:
            del changes[path]
        if change.parent is not None and changes.get(change.parent_path) is change:
            del changes[change.parent_path]
        if node is not None and node.owner and change.before is None:
            self._disown(path, node.owner)

    def _settle_parts(self, change: Change) -> None:
        if isinstance(change, MultiChange):
            self._settle_all(change.latest)
            for part in change.owned:
                assert part.node is not None
                self._disown(part.path, part.node.owner)
        elif isinstance(change, SessionChange):
            for part in change.parts:
                self.settle(part)
            self._settle_all(dict.fromkeys(change.gone, change))

    def _settle_all(self, settled: Mapping[str, Change]) -> None:
        """These were the latest changes of their paths when they were staged."""
        changes = self._changes
        latest = list(map(changes.get, settled))
        if latest == list(settled.values()):
            collections.deque(map(changes.pop, settled), maxlen=0)
            return
        for found, (path, change) in zip(latest, settled.items(), strict=True):
            if found is change:
                del changes[path]

    def _own(self, path: str, owner: int) -> None:
        """A change that makes a node of the owner there is staged."""
        owned = self._owned.setdefault(owner, {})
        owned[path] = owned.get(path, 0) + 1

    def _disown(self, path: str, owner: int) -> None:
        """A change that made a node of the owner there is committed."""
        owned = self._owned[owner]
        owned[path] -= 1
        if not owned[path]:
            del owned[path]
            if not owned:
                del self._owned[owner]


class Parts:
    """A view with the changes of a transaction's parts, so far as they are decided."""

    __slots__ = ("_below", "_digest", "_latest", "_nodes", "_open", "_owned", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._below, self._nodes = view.layers
        self._latest: dict[str, Change] = {}
        self._owned: list[Change] = []
        self._digest = 0
        self._open: dict[str, DataNode] = {}
        """Parents that only these parts know, so that a further child changes them in place;
        their digests wait for `finish`."""

    def get(self, path: str) -> DataNode | None:
        change = self._latest.get(path) or self._below.get(path)
        if change is None:
            return self._nodes.get(path)
        return change.node if change.path == path else change.parent

    @property
    def layers(self) -> tuple[dict[str, Change], dict[str, DataNode]]:
        raise AssertionError("a part of a transaction has no parts")

    def intern(self, acl: Iterable[ACL] | None) -> tuple[ACL, ...]:
        return self._view.intern(acl)

    def with_children(self, node: DataNode, path: str, cversion: int, pzxid: int, num_children: int) -> DataNode:
        if self._open.get(path) is not node:
            node = self._open[path] = node.copy()
        node.cversion = cversion
        node.pzxid = pzxid
        node.num_children = num_children
        return node

    def add(self, change: Change) -> None:
        """The next part is decided."""
        self._digest += change.digest
        node, before = change.node, change.before
        if node is not before:
            self._latest[change.path] = change
            if before is None and node is not None and node.owner:
                self._owned.append(change)
        if change.parent is not None:
            self._latest[change.parent_path] = change

    def finish(self, parts: Sequence[Change], err: int = 0) -> MultiChange:
        """The change that all parts are together."""
        for path, node in self._open.items():
            if self.get(path) is node:
                before, node.digest = node.digest, node.compute_digest(path)
                self._digest += node.digest - before
        self._open.clear()
        count = sum([change.count for change in parts])
        return MultiChange(
            OpCode.MULTI,
            digest=self._digest,
            count=count,
            err=err,
            parts=parts,
            latest=self._latest,
            owned=self._owned,
        )


def _owner_of(node: DataNode | None) -> int:
    return node.owner if node is not None else 0

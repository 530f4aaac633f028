"""The tree of nodes with its indexes and counts: ZooKeeper's DataTree.

`View` is what the operations decide on: the `Tree` itself, or `Staged`, the tree with the changes
on top that are decided but not committed. Both keep the digest as they go.

Only committed changes reach the `Tree`, one transaction after the other, with rising zxids; a
reader sees all changes of a transaction or none.
"""

import collections
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from barnabas.coordination.core.access import AccessList
from barnabas.coordination.core.changes import Change
from barnabas.coordination.core.paths import CONFIG_PATH, QUOTA_PATH, SYSTEM_PATH, parent_of
from barnabas.coordination.core.quotas import Quotas
from barnabas.coordination.core.znode import DataNode
from barnabas.wire.jute.records import ACL, OPEN_ACL, READ_ACL

__all__ = ["Tree", "View", "WholeView"]

_DIGEST_MASK = (1 << 64) - 1
_LONG_PATH = 256
_READ_ACL = AccessList(READ_ACL)  # which keeps what checks need, as the lists of other nodes do
_RELEASED_AT_ONCE = 2000
_WALKED_AT_ONCE = 5000
_NODES_A_STEP = 100
_OWNER, _DIGEST = attrgetter("owner"), attrgetter("digest")


class View(Protocol):
    """Nodes as they are after all decisions so far: the tree's, the tree's with what is staged, or
    those after a transaction's parts."""

    def get(self, path: str) -> DataNode | None: ...

    def intern(self, acl: Iterable[ACL] | None) -> tuple[ACL, ...]:
        """The tuple that all equal lists share."""
        ...

    @property
    def with_children(self) -> Callable[[DataNode, str, int, int, int], DataNode]:
        """`DataNode.with_children`, or what does the same."""
        ...

    @property
    def layers(self) -> "tuple[dict[str, Change], dict[str, DataNode]]":
        """What `get` looks at: the latest changes by path, and the nodes below them."""
        ...


class WholeView(View, Protocol):
    """A view that also finds a session's nodes."""

    def get_all(self, paths: list[str]) -> list[DataNode | None]:
        """`get` of each."""
        ...

    def ephemerals_of(self, session_id: int) -> dict[str, None]:
        """Paths of the session's ephemerals, in the order in which they came into this tree; the
        caller may change what it gets."""
        ...


class _Image:
    """What has changed since a `Tree.frozen` began."""

    __slots__ = ("fresh", "kept")

    def __init__(self) -> None:
        self.kept: dict[str, DataNode] = {}
        """Nodes of that moment that have changed, as they were."""
        self.fresh: set[str] = set()
        """Paths that were not there, and are now: their nodes need not be kept."""

    def keep(self, path: str, old: DataNode | None) -> None:
        """A path is about to change from ``old``."""
        if old is None:
            if path not in self.kept:
                self.fresh.add(path)
        elif path not in self.fresh:
            self.kept.setdefault(path, old)


class Tree:
    """All committed nodes by path, with the indexes that make the operations cheap."""

    __slots__ = (
        "_acls",
        "_images",
        "_limited",
        "_long_paths",
        "_used_acls",
        "children",
        "containers",
        "data_bytes",
        "digest_sum",
        "ephemerals",
        "nodes",
        "quotas",
        "ttls",
        "with_children",
    )

    def __init__(self) -> None:
        self.with_children = DataNode.with_children
        self.nodes: dict[str, DataNode] = {}
        self.children: dict[str, dict[str, None]] = {}
        """Names below a path; no entry where there are none."""
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.containers: dict[str, None] = {}
        self.ttls: dict[str, None] = {}
        """Like `containers` in the order of creation: the order of a set would depend on hashes."""
        self.data_bytes = 0
        """Bytes of all paths and data."""
        self.quotas = Quotas()
        self._limited = self.quotas.limited
        self.digest_sum = 0
        """The sum of the digests of all nodes, without a limit: `digest` is this modulo 2**64."""
        self._acls: dict[tuple[ACL, ...], tuple[ACL, ...]] = {}
        self._used_acls: set[tuple[ACL, ...]] | None = None
        """The access control lists that `forget_unused_acls` has found in use so far."""
        self._long_paths: dict[str, str] = {}
        """Paths that are worth keeping once: they are keys of `nodes`, and of `children` too."""
        self._images: list[_Image] = []
        """One for each `frozen` that is not at its end."""
        for acl in (OPEN_ACL, _READ_ACL):
            self._acls[acl] = acl
        self.put("/", DataNode.system("/", 1))
        self.put(SYSTEM_PATH, DataNode.system(SYSTEM_PATH, 2))
        self.put(QUOTA_PATH, DataNode.system(QUOTA_PATH, 0))
        self.put(CONFIG_PATH, DataNode.system(CONFIG_PATH, 0, _READ_ACL, aversion=-1))

    @property
    def digest(self) -> int:
        """The sum of the nodes' digests, as a signed 64-bit number."""
        value = self.digest_sum & _DIGEST_MASK
        return value - (1 << 64) if value >> 63 else value

    def set_configuration(self, text: bytes, version: int, wall_ms: int) -> None:
        """Put the configuration of the ensemble into its node, as each member does by itself:
        without a transaction."""
        node = self.nodes.get(CONFIG_PATH) or DataNode.system(CONFIG_PATH, 0, _READ_ACL, aversion=-1)
        self.put(CONFIG_PATH, node.with_data(CONFIG_PATH, text, -1, version, wall_ms))

    def get(self, path: str) -> DataNode | None:
        return self.nodes.get(path or "/")

    @property
    def layers(self) -> tuple[dict[str, Change], dict[str, DataNode]]:
        return {}, self.nodes

    def intern(self, acl: Iterable[ACL] | None) -> tuple[ACL, ...]:
        key = AccessList(acl or ())
        return self._acls.setdefault(key, key)

    def known_acls(self) -> list[tuple[ACL, ...]]:
        """All access control lists that nodes have; some may be no longer in use."""
        return list(self._acls)

    def forget_unused_acls(self) -> Iterator[None]:
        """Drop access control lists that no node has, so that clients cannot fill the memory with
        them.

        Other work may run wherever this yields. One walk at a time.
        """
        used: set[tuple[ACL, ...]] = {OPEN_ACL, _READ_ACL}
        self._used_acls = used
        nodes = self.nodes
        for number, path in enumerate(list(nodes), 1):
            node = nodes.get(path)
            if node is not None:
                used.add(node.acl)
            if not number % _WALKED_AT_ONCE:
                yield
        self._used_acls = None
        self._acls = {acl: same for acl, same in self._acls.items() if acl in used}

    def _keep_acl(self, acl: tuple[ACL, ...]) -> None:
        """A node has the list, which may have been dropped between the decision of the node's
        transaction and its commit."""
        self._acls.setdefault(acl, acl)
        if self._used_acls is not None:
            self._used_acls.add(acl)

    def ephemerals_of(self, session_id: int) -> dict[str, None]:
        return dict(self.ephemerals.get(session_id, ()))

    def frozen(self) -> Iterator[tuple[str, DataNode]]:
        """All nodes as they are at the first ``next``, parents before children, whatever changes
        after it.

        Only the paths are copied: that takes 13 ms for a million nodes, and a copy of the
        dictionary 30. Each node that changes meanwhile is kept as it was, until the iterator is
        closed.
        """
        image = _Image()
        kept = image.kept
        paths = list(self.nodes)
        paths.reverse()  # taken from the end, so that their memory is freed little by little
        self._images.append(image)
        try:
            nodes = self.nodes
            while paths:
                path = paths.pop()
                yield path, kept.get(path) or nodes[path]
        finally:
            self._images = [each for each in self._images if each is not image]

    def put(self, path: str, node: DataNode) -> None:
        """Put a new node, or one with new data."""
        old = self.nodes.get(path)
        for image in self._images:
            image.keep(path, old)
        if old is None and len(path) >= _LONG_PATH:
            path = self._long_paths.setdefault(path, path)
        self.nodes[path] = node
        if node.acl is not OPEN_ACL:
            self._keep_acl(node.acl)
        grown = len(node.data or b"")
        if old is None:
            self.digest_sum += node.digest
            self.data_bytes += len(path) + grown
            self._created(path, node)
        else:
            self.digest_sum += node.digest - old.digest
            grown -= len(old.data or b"")
            self.data_bytes += grown
        if self._limited:
            self.data_bytes += self.quotas.changed(self.nodes, path, grown, 1 if old is None else 0)

    def put_without_data(self, path: str, node: DataNode) -> None:
        """Put a node that has other children or another list, and keep the data that is there.

        The usage of a quota changes without a transaction, so it may have changed since the node
        was decided on.
        """
        old = self.nodes[path]
        for image in self._images:
            image.keep(path, old)
        node.data = old.data
        self.nodes[path] = node
        self.digest_sum += node.digest - old.digest
        if node.acl is not OPEN_ACL:
            self._keep_acl(node.acl)

    def put_child(self, change: Change) -> None:
        """The same as `put_without_data` of the parent and `put` of its new child, and faster for a
        common node where nothing is counted or kept."""
        path, node, parent_path, parent = change.path, change.node, change.parent_path, change.parent
        assert node is not None
        assert parent is not None
        names, nodes = self.children.get(parent_path), self.nodes
        if (
            names is None
            or self._images
            or self._limited
            or node.owner
            or node.acl is not OPEN_ACL
            or parent.acl is not OPEN_ACL
            or len(path) >= _LONG_PATH
            or change.before is not None
            or not node.digest  # below /zookeeper
        ):
            self.put_without_data(parent_path, parent)
            if change.before is None:
                self.put(path, node)
            else:
                self.put_without_data(path, node)
            return
        self.digest_sum += node.digest + parent.digest - nodes[parent_path].digest
        nodes[parent_path] = parent
        nodes[path] = node
        names[path[path.rfind("/") + 1 :]] = None
        data = node.data
        self.data_bytes += len(path) + len(data) if data else len(path)

    def put_children(self, parent_path: str, parent: DataNode, created: Sequence[Change]) -> None:
        """As `put_child` of each of these new nodes below one parent, which has all of them."""
        names, nodes = self.children.get(parent_path), self.nodes
        self.put_without_data(parent_path, parent)
        if self._images or self._limited or parent_path.startswith(SYSTEM_PATH):
            self._put_all(created)
            return
        if names is None:
            names = self.children[self._long_paths.get(parent_path, parent_path)] = {}
        prefix = len(parent_path) + (parent_path != "/")
        digest = data_bytes = 0
        for number, change in enumerate(created):
            path, node = change.path, change.node
            assert node is not None
            if node.owner or node.acl is not OPEN_ACL or len(path) >= _LONG_PATH:
                created = created[number:]
                break
            digest += node.digest
            nodes[path] = node
            names[path[prefix:]] = None
            data_bytes += len(path) + len(node.data or b"")
        else:
            created = ()
        self.digest_sum += digest
        self.data_bytes += data_bytes
        self._put_all(created)

    def _put_all(self, created: Sequence[Change]) -> None:
        for change in created:
            assert change.node is not None
            self.put(change.path, change.node)

    def remove_child(self, change: Change) -> None:
        """As `put_without_data` of the parent and `remove` of its child.

        It costs less where nothing is counted or kept, and no session owns the child. In a replay
        over a fuzzy snapshot the child may be gone already."""
        path, before, parent_path, parent = change.path, change.before, change.parent_path, change.parent
        assert parent is not None
        if (
            before is None
            or self._images
            or self._limited
            or before.owner
            or parent.acl is not OPEN_ACL
            or len(path) >= _LONG_PATH
        ):
            self.put_without_data(parent_path, parent)
            if before is not None:
                self.remove(path)
            return
        nodes, names = self.nodes, self.children[parent_path]
        old = nodes[parent_path]
        parent.data = old.data  # as in `put_without_data`
        nodes[parent_path] = parent
        node = nodes.pop(path)
        self.digest_sum += parent.digest - old.digest - node.digest
        del names[path[path.rfind("/") + 1 :]]
        if not names:
            del self.children[parent_path]
        self.data_bytes -= len(path) + len(node.data or b"")

    def put_data(self, change: Change) -> None:
        """As `put` of a node with new data.

        It costs less where the node is open to all, and nothing is counted or kept."""
        path, node = change.path, change.node
        assert node is not None
        old = self.nodes.get(path)
        if old is None or self._images or self._limited or node.acl is not OPEN_ACL:
            self.put(path, node)
            return
        self.nodes[path] = node
        self.digest_sum += node.digest - old.digest
        self.data_bytes += len(node.data or b"") - len(old.data or b"")

    def _created(self, path: str, node: DataNode) -> None:
        if path != "/":
            slash = path.rfind("/")
            parent, name = path[:slash] or "/", path[slash + 1 :]
            names = self.children.get(parent)
            if names is None:
                self.children[self._long_paths.get(parent, parent)] = {name: None}
            else:
                names[name] = None
            if parent.startswith(QUOTA_PATH):
                self.data_bytes += self.quotas.created(self.nodes, self.children, parent, name)
        if node.owner:
            if node.is_container:
                self.containers[path] = None
            elif node.ttl_ms is not None:
                self.ttls[path] = None
            else:
                self.ephemerals.setdefault(node.owner, {})[path] = None

    def release(self) -> Iterator[None]:
        """Drop all nodes of a tree that is used no more, some at a time: their memory takes 0.4
        s for a million of them."""
        for table in (self.nodes, self.children):
            while table:
                for _ in range(min(_RELEASED_AT_ONCE, len(table))):
                    table.popitem()
                yield None

    def remove(self, path: str) -> None:
        node = self.nodes.pop(path)
        for image in self._images:
            image.keep(path, node)
            image.fresh.discard(path)
        if len(path) >= _LONG_PATH:
            self._long_paths.pop(path, None)
        self.digest_sum -= node.digest
        data_bytes = len(node.data or b"")
        self.data_bytes -= len(path) + data_bytes
        parent = parent_of(path)
        name = path[path.rfind("/") + 1 :]
        names = self.children[parent]
        names.pop(name, None)
        if not names:
            del self.children[parent]
        if node.owner:
            self.containers.pop(path, None)
            self.ttls.pop(path, None)
            owned = self.ephemerals.get(node.owner)
            if owned is not None:
                owned.pop(path, None)
                if not owned:
                    del self.ephemerals[node.owner]
        if self._limited:
            self.quotas.deleted(parent, name)
            self.data_bytes += self.quotas.changed(self.nodes, path, -data_bytes, -1)

    def get_all(self, paths: list[str]) -> list[DataNode | None]:
        return list(map(self.nodes.get, paths))

    def remove_all(self, paths: list[str]) -> None:
        """As `remove` of each, which have no children; many ephemerals of one session take less
        time."""
        gone = [self.nodes[path] for path in paths]
        owners = set(map(_OWNER, gone))
        owner = owners.pop() if len(owners) == 1 else 0
        if owner not in self.ephemerals or self._images or self._limited or self._long_paths:
            for path in paths:
                self.remove(path)
            return
        collections.deque(map(self.nodes.pop, paths), maxlen=0)
        self.digest_sum -= sum(map(_DIGEST, gone))
        self.data_bytes -= sum(map(len, paths)) + sum([len(node.data) for node in gone if node.data])
        owned, children = self.ephemerals[owner], self.children
        if len(owned) == len(paths):
            del self.ephemerals[owner]
        else:
            collections.deque(map(owned.pop, paths), maxlen=0)
        parents: dict[str, dict[str, None]] = {}
        for path in paths:
            slash = path.rfind("/")
            parent_path = path[:slash] or "/"
            names = parents.get(parent_path)
            if names is None:
                names = parents[parent_path] = children[parent_path]
            del names[path[slash + 1 :]]
        for parent_path, names in parents.items():
            if not names:
                del children[parent_path]

    def check_quota(self, path: str, bytes_more: int, count_more: int) -> None:
        """QUOTA_EXCEEDED if a write at ``path`` may not add this much."""
        if self._limited:
            self.quotas.check(self.nodes, path, bytes_more, count_more)

    def due_containers(self, wall_ms: int, never_used_ms: int = 0) -> Iterator[str | None]:
        """Containers that have lost their last child, or had none for longer than ``never_used_ms``
        (0: for ever), and TTL nodes whose time is over; the oldest first.

        Other work may run wherever this yields, also None, which is no node.
        """
        nodes = self.nodes
        for number, path in enumerate([*self.containers, *self.ttls], 1):
            node = nodes.get(path)
            if node is not None and not node.num_children:
                if node.is_container:
                    is_due = node.cversion > 0 or 0 < never_used_ms < wall_ms - node.mtime
                else:
                    is_due = node.ttl_ms is not None and wall_ms - node.mtime > node.ttl_ms
                if is_due:
                    yield path
            if not number % _NODES_A_STEP:
                yield None

    def names_below(self, path: str) -> list[str]:
        """The names of a node's children."""
        return list(self.children.get(path or "/", ()))

    def count_below(self, path: str) -> Generator[None, None, int]:
        """The number of nodes below the path, at all levels.

        Other work may run wherever this yields. Some of its changes may be counted,
        as in ZooKeeper.
        """
        if path == "/":
            return len(self.nodes) - 1
        children, prefix, count = self.children, path + "/", 0
        for number, parent_path in enumerate(list(children), 1):
            if parent_path == path or parent_path.startswith(prefix):
                count += len(children.get(parent_path, ()))
            if not number % _WALKED_AT_ONCE:
                yield
        return count

    def replace_all(self, nodes: Iterable[tuple[str, DataNode]]) -> None:
        """Replace all nodes by those of a snapshot, parents before children."""
        self.nodes.clear()
        self.children.clear()
        self.ephemerals.clear()
        self.containers.clear()
        self.ttls.clear()
        self._long_paths.clear()
        self.data_bytes = self.digest_sum = 0
        self.quotas = Quotas()
        self._limited = self.quotas.limited
        for path, node in nodes:
            node.acl = self._acls.setdefault(node.acl, node.acl)
            self.put(path, node)
        for path, names in self.children.items():
            self.nodes[path].num_children = len(names)
        if self._limited:
            self.data_bytes += self.quotas.loaded(self.nodes, self.children)

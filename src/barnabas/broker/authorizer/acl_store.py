"""The znodes of access control lists: read, followed, and changed, as steps.

Every broker with an authorizer keeps the entries of all patterns. A change replaces those of one
pattern if their znode still has the version that was read, and leaves a note in the same
transaction: no other broker misses a change that was made. Where another broker was faster, the
znode is read again and the change made to what it says now.

Looks and changes of one store must not overlap: what a look has read would replace what a change
has written since. ``in_turn`` does one after the other (`service`). A change of very many patterns
is several, so that others are not kept from what brokers have changed meanwhile.

In Kafka: `AclAuthorizer.loadCache`, `updateResourceAcls`, `createAcls` and `deleteAcls`, and the
methods of `KafkaZkClient` for ACLs. There a znode that cannot be read while a broker runs leaves
what the broker knew; here its pattern denies everything to all but super users until it can be.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas.base.randomness import Random
from barnabas.base.tasks import list_of, one_by_one
from barnabas.broker.authorizer.acl_znodes import (
    ACL_CHANGE_PREFIX,
    ACL_PATHS,
    CHANGES,
    MAX_ACLS_BYTES,
    RESOURCE_TYPES,
    acl_path,
    decode_acls,
    decode_change,
    encode_acls,
    encode_change,
    has_znode,
)
from barnabas.broker.authorizer.authorizer import NO_ACLS, UNREADABLE_ACLS, Authorizer, VersionedAcls
from barnabas.broker.cluster.change_notes import ChangeNotes
from barnabas.broker.cluster.steps import (
    ITEMS_A_TURN,
    Check,
    Children,
    Committed,
    Create,
    Delete,
    Pause,
    ReadAllowed,
    Refused,
    SetData,
    Steps,
    Transact,
    WriteOp,
    WriteResult,
    WriteUnfenced,
    Written,
    Znode,
)
from barnabas.broker.cluster.znodes import ZnodeFormatError
from barnabas.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    is_principal,
)
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["UNREADABLE_RETRY_MS", "AclBindingDeleteResult", "AclDeleteResult", "AclStore"]

logger = logging.getLogger(__name__)

_MAX_RETRIES = 10
_RETRY_MS = 100
_RETRY_JITTER_MS = 50
_CHANGED_MEANWHILE = (Keeper.BAD_VERSION, Keeper.NO_NODE, Keeper.NODE_EXISTS)
UNREADABLE_RETRY_MS = 10_000
"""How often znodes that cannot be read are read again: who repairs one leaves no note."""
_BATCH_BYTES = 1 << 20
"""What the entries that are written together have at most, beside those of one pattern."""

K = TypeVar("K")
V = TypeVar("V")
_Entries = frozenset[AccessControlEntry]
_Change = Callable[[_Entries], _Entries]
_Failure = KafkaError | KeeperError | None
_Unreadable = ZnodeFormatError | KeeperError
"""Why a znode cannot be read: its contents, or its ACL in the coordination service."""


class AclBindingDeleteResult(NamedTuple):
    """An entry that a filter matched, and why it is still there; None if it is deleted."""

    binding: AclBinding
    failure: _Failure


class AclDeleteResult(NamedTuple):
    """What became of the entries that a filter matches."""

    failure: _Failure
    """Why there may be more: a znode could not be read."""
    bindings: list[AclBindingDeleteResult]


class AclStore:
    """Keeps an `Authorizer` to the znodes, and changes them."""

    def __init__(
        self, authorizer: Authorizer, wall_ms: Callable[[], int], rng: Random, *, has_prefixes: bool = True
    ) -> None:
        """``has_prefixes``: whether all brokers know prefixed patterns
        (inter.broker.protocol.version)."""
        self._authorizer = authorizer
        self._rng = rng
        self._has_prefixes = has_prefixes
        self.in_turn: Callable[[Steps[None]], Steps[None]] = lambda steps: steps
        """Performs steps when no others of the store are under way."""
        self.notes = {kind: ChangeNotes(root, ACL_CHANGE_PREFIX, wall_ms) for kind, root in CHANGES.items()}

    # Reading

    def load(self) -> Steps[None]:
        """Make the permanent znodes, and read all entries.

        Raises `ZnodeFormatError` or `KeeperError` for a znode that cannot be read: who may do what
        is unknown."""
        made: list[Written] = yield WriteUnfenced([Create(path) for path in ACL_PATHS], repeat=True)
        for written in made:
            written.or_raise(WriteResult.EXISTS)
        yield from self._read_all(self._read)

    def reload(self) -> Steps[None]:
        """Read all entries again: notes may have come and gone while there was no session."""
        yield from self._read_all(self._refresh)

    def _read_all(self, read: Callable[[Sequence[ResourcePattern]], Steps[None]]) -> Steps[None]:
        seen: dict[ChangeNotes, list[str]] = {}
        for notes in self.notes.values():
            seen[notes] = yield from notes.skip()
        yield from self._read_patterns(read)
        for notes, paths in seen.items():
            yield from notes.delete_expired(paths)

    def _read_patterns(self, read: Callable[[Sequence[ResourcePattern]], Steps[None]]) -> Steps[None]:
        """Read the entries of all patterns that there are, and forget the others."""
        known = one_by_one(self._authorizer.patterns())
        there: set[ResourcePattern] = set()
        for pattern_type in CHANGES:
            for resource_type in RESOURCE_TYPES:
                names: list[str] = yield Children(acl_path(resource_type, pattern_type))
                for first in range(0, len(names), ITEMS_A_TURN):
                    some = names[first : first + ITEMS_A_TURN]
                    patterns = [ResourcePattern(resource_type, name, pattern_type) for name in some]
                    yield from read(patterns)
                    there.update(patterns)
        for pattern in known:
            if pattern in there:
                there.discard(pattern)
            else:
                self._authorizer.update(pattern, NO_ACLS)
            yield None

    def _read(self, patterns: Sequence[ResourcePattern]) -> Steps[None]:
        """Raises `ZnodeFormatError` or `KeeperError`."""
        for pattern, acls in (yield from _read_acls(patterns)).items():
            if isinstance(acls, _Unreadable):
                raise acls
            yield from self._authorizer.update_in_slices(pattern, acls)
            yield None

    def _refresh(self, patterns: Sequence[ResourcePattern]) -> Steps[None]:
        for pattern, acls in (yield from _read_acls(patterns)).items():
            if isinstance(acls, _Unreadable):
                self._deny(pattern, acls)
            else:
                if pattern in self._authorizer.unreadable:
                    logger.info("The ACLs for %s can be read again", _shown(pattern))
                yield from self._authorizer.update_in_slices(pattern, acls)
            yield None

    def _deny(self, pattern: ResourcePattern, why: _Unreadable) -> None:
        if pattern not in self._authorizer.unreadable:
            logger.error(
                "All but super users are denied what the ACLs for %s are about, because these cannot be read. "
                "Write the znode %s again, or delete it; it is read again every %d s. %s",
                _shown(pattern),
                acl_path(pattern.resource_type, pattern.pattern_type, pattern.name),
                UNREADABLE_RETRY_MS // 1000,
                why,
            )
        self._authorizer.update(pattern, UNREADABLE_ACLS)

    def retry_unreadable(self) -> Steps[None]:
        """Read znodes again that could not be read."""
        patterns = list(self._authorizer.unreadable)
        for first in range(0, len(patterns), ITEMS_A_TURN):
            yield from self._refresh(patterns[first : first + ITEMS_A_TURN])

    def process_changes(self, pattern_type: PatternType) -> Steps[None]:
        """Look for notes about patterns of a type, and read again what the new ones name."""
        yield from self.notes[pattern_type].process(self._apply_notes)

    def _apply_notes(self, notes: Sequence[tuple[str, bytes | None]]) -> Steps[None]:
        patterns: dict[ResourcePattern, None] = {}
        are_all_read = True
        for path, data in notes:
            try:
                pattern = decode_change(path, data)
            except ZnodeFormatError as error:
                logger.error("The ACLs of all patterns are read again, because a change is unknown: %s", error)
                are_all_read = False
                continue
            if pattern is not None and has_znode(pattern):
                patterns[pattern] = None
        if are_all_read:
            yield from self._refresh(list(patterns))
        else:
            yield from self._read_patterns(self._refresh)

    # Changing

    def create(self, bindings: Sequence[AclBinding]) -> Steps[list[_Failure]]:
        """Add entries; those that are there are no error. What went wrong with each, in order."""
        added: dict[ResourcePattern, set[AccessControlEntry]] = {}
        failures: dict[ResourcePattern, _Failure] = {}
        for pattern, entry in bindings:
            if self._is_valid(pattern, entry):
                added.setdefault(pattern, set()).add(entry)
                if not is_principal(entry.principal) or not has_znode(pattern):
                    # As Kafka has it: the pattern's other entries fail with it.
                    failures[pattern] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            yield None
        unions: Iterator[tuple[ResourcePattern, _Change]] = (
            (pattern, partial(frozenset[AccessControlEntry].union, frozenset(entries)))
            for pattern, entries in _taken_from(added)
            if pattern not in failures
        )
        changes = yield from list_of(unions)
        failures.update((yield from self._change_all(changes)))
        results = []
        for pattern, entry in bindings:
            is_valid = self._is_valid(pattern, entry)
            results.append(
                failures[pattern] if is_valid else KafkaError(ErrorCode.INVALID_REQUEST, "Failed to create ACL")
            )
            yield None
        return results

    def _is_valid(self, pattern: ResourcePattern, entry: AccessControlEntry) -> bool:
        is_known = (
            pattern.resource_type is not ResourceType.UNKNOWN
            and pattern.pattern_type is not PatternType.UNKNOWN
            and entry.operation is not AclOperation.UNKNOWN
            and entry.permission_type is not AclPermissionType.UNKNOWN
        )
        is_supported = self._has_prefixes or pattern.pattern_type is not PatternType.PREFIXED
        return is_known and is_supported and "/" not in pattern.name

    def delete(self, filters: Sequence[AclBindingFilter]) -> Steps[list[AclDeleteResult]]:
        """Remove the entries that filters match: for each filter those that no earlier one matched.

        A filter for few patterns is compared with their znodes, any other with the entries that
        this broker knows."""
        matching: dict[ResourcePattern, dict[int, AclBindingFilter]] = {}
        wide = []
        for index, wanted in enumerate(filters):
            patterns = wanted.pattern.patterns
            if patterns is None:
                wide.append((index, wanted))
            else:
                for pattern in patterns:
                    if has_znode(pattern):
                        matching.setdefault(pattern, {})[index] = wanted
            yield None
        yield from self._match_wide(wide, matching)
        removals = yield from list_of(
            (pattern, _Removal(dict(sorted(found.items())))) for pattern, found in _taken_from(matching)
        )
        rests: Iterator[tuple[ResourcePattern, _Change]] = ((pattern, removal.of) for pattern, removal in removals)
        changes = yield from list_of(rests)
        failures = yield from self._change_all(changes)
        deleted: list[list[AclBindingDeleteResult]] = [[] for _ in filters]
        unread: dict[int, _Failure] = {}
        while removals:
            pattern, removal = removals.pop()
            for entry, index in removal.removed.items():
                deleted[index].append(AclBindingDeleteResult(AclBinding(pattern, entry), failures[pattern]))
            if failures[pattern] is not None and not removal.has_seen_entries:
                unread.update(dict.fromkeys(removal.filters, failures[pattern]))
            yield None
        return [AclDeleteResult(unread.get(index), bindings) for index, bindings in enumerate(deleted)]

    def _match_wide(
        self,
        filters: Sequence[tuple[int, AclBindingFilter]],
        matching: dict[ResourcePattern, dict[int, AclBindingFilter]],
    ) -> Steps[None]:
        """Add filters that may match any number of patterns to those that they do match."""
        if not filters:
            return
        for pattern in list(self._authorizer.patterns()):
            acls = self._authorizer.acls_of(pattern) or NO_ACLS
            is_unreadable = pattern in self._authorizer.unreadable
            for index, wanted in filters:
                if wanted.pattern.matches(pattern) and (is_unreadable or any(map(wanted.entry.matches, acls.entries))):
                    matching.setdefault(pattern, {})[index] = wanted
                yield None

    def _change_all(self, changes: list[tuple[ResourcePattern, _Change]]) -> Steps[dict[ResourcePattern, _Failure]]:
        """Change the entries of patterns, some at a time; what went wrong with each. Takes those
        that are done from the list."""
        failures: dict[ResourcePattern, _Failure] = {}
        while changes:
            some = _PatternChanges(self._authorizer, self.notes, dict(changes[-ITEMS_A_TURN:]))
            del changes[-ITEMS_A_TURN:]
            yield from self.in_turn(self._change(some))
            failures.update(some.failures)
        return failures

    def _change(self, some: "_PatternChanges") -> Steps[None]:
        try:
            for retry in range(_MAX_RETRIES + 1):
                if retry:
                    yield Pause(_RETRY_MS + self._rng.randrange(_RETRY_JITTER_MS))
                yield from some.attempt(is_first=not retry)
                if not some.pending:
                    break
        except KeeperError as error:
            some.fail_pending(error.with_traceback(None))
        some.fail_pending(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


def _taken_from(items: dict[K, V]) -> Iterator[tuple[K, V]]:
    """The items, the last one first, each taken out: very many would all be freed at the end."""
    while items:
        yield items.popitem()


class _Removal:
    """The change that removes what filters match; ``removed`` has the index of the first filter
    that matched, by entry."""

    __slots__ = ("filters", "has_seen_entries", "removed")

    def __init__(self, filters: Mapping[int, AclBindingFilter]) -> None:
        self.filters = filters
        self.has_seen_entries = False
        """Whether it is known what the filters match."""
        self.removed: dict[AccessControlEntry, int] = {}

    def of(self, entries: _Entries) -> _Entries:
        """The entries that stay."""
        self.removed = {}
        self.has_seen_entries = True
        for entry in entries:
            index = next((index for index, wanted in self.filters.items() if wanted.entry.matches(entry)), None)
            if index is not None:
                self.removed[entry] = index
        return entries - self.removed.keys()


class _PatternChanges:
    """Changes of the entries of some patterns, under way together."""

    def __init__(
        self,
        authorizer: Authorizer,
        notes: Mapping[PatternType, ChangeNotes],
        pending: Mapping[ResourcePattern, _Change],
    ) -> None:
        self._authorizer = authorizer
        self._notes = notes
        self.pending = dict(pending)
        self.failures: dict[ResourcePattern, _Failure] = {}
        """What went wrong with those that are not pending; None for what is done."""

    def fail_pending(self, failure: _Failure) -> None:
        """Give up what is not done."""
        for pattern in list(self.pending):
            self._end(pattern, failure)

    def _end(self, pattern: ResourcePattern, failure: _Failure = None) -> None:
        del self.pending[pattern]
        self.failures[pattern] = failure

    def attempt(self, *, is_first: bool) -> Steps[None]:
        """Try to make all pending changes.

        The first time to the entries that this broker knows. What would change nothing there is
        compared with its znode, for the broker may not know yet what another one has changed."""
        known: dict[ResourcePattern, VersionedAcls] = {}
        if is_first:
            for pattern, change in self.pending.items():
                acls = self._authorizer.acls_of(pattern)
                if acls is not None and change(acls.entries) != acls.entries:
                    known[pattern] = acls
                yield None
        read = yield from _read_acls([pattern for pattern in self.pending if pattern not in known])
        for pattern, found in read.items():
            if isinstance(found, _Unreadable):
                logger.error("The ACLs for %s cannot be changed: %s", _shown(pattern), found)
                self._end(pattern, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            else:
                known[pattern] = found
        batch: dict[ResourcePattern, tuple[_Entries, list[WriteOp | Check]]] = {}
        size_bytes = 0
        for pattern, acls in known.items():
            entries = self.pending[pattern](acls.entries)
            data = yield from encode_acls(entries)
            yield None
            if entries == acls.entries:
                yield from self._authorizer.update_in_slices(pattern, acls)
                self._end(pattern)
            elif len(data) > MAX_ACLS_BYTES:
                self._end(pattern, KafkaError(ErrorCode.INVALID_REQUEST, _TOO_MANY))
            else:
                if size_bytes + len(data) > _BATCH_BYTES:
                    yield from self._write(batch)
                    batch, size_bytes = {}, 0
                size_bytes += len(data)
                batch[pattern] = entries, self._ops(pattern, entries, data, acls.version)
        yield from self._write(batch)

    def _ops(self, pattern: ResourcePattern, entries: _Entries, data: bytes, version: int) -> list[WriteOp | Check]:
        path = acl_path(pattern.resource_type, pattern.pattern_type, pattern.name)
        op: WriteOp
        if not entries:
            op = Delete(path, version)
        elif version < 0:
            op = Create(path, data)
        else:
            op = SetData(path, data, version)
        return [op, self._notes[pattern.pattern_type].note(encode_change(pattern))]

    def _write(self, batch: Mapping[ResourcePattern, tuple[_Entries, list[WriteOp | Check]]]) -> Steps[None]:
        """Write the entries of patterns; what another broker has changed meanwhile stays pending.

        Again after a lost connection: what was written then is found in the next attempt."""
        outcomes: list[Committed | Refused] = yield Transact([ops for _, ops in batch.values()], repeat=True)
        for (pattern, (entries, _)), outcome in zip(batch.items(), outcomes, strict=True):
            if isinstance(outcome, Committed):
                logger.info("Updated ACLs for %s with new version %d", _shown(pattern), outcome.versions[0])
                yield from self._authorizer.update_in_slices(pattern, VersionedAcls(entries, outcome.versions[0]))
                self._end(pattern)
            elif outcome.error.code not in _CHANGED_MEANWHILE:
                self._end(pattern, outcome.error.with_traceback(None))
            yield None


_TOO_MANY = f"The ACLs of one resource pattern may have {MAX_ACLS_BYTES} bytes in all"


def _read_acls(patterns: Sequence[ResourcePattern]) -> Steps[dict[ResourcePattern, VersionedAcls | _Unreadable]]:
    """What the znodes of patterns say."""
    if not patterns:
        return {}
    paths = [acl_path(pattern.resource_type, pattern.pattern_type, pattern.name) for pattern in patterns]
    znodes: list[Znode | KeeperError | None] = yield ReadAllowed(paths)
    found: dict[ResourcePattern, VersionedAcls | _Unreadable] = {}
    for pattern, path, znode in zip(patterns, paths, znodes, strict=True):
        if znode is None or isinstance(znode, KeeperError):
            found[pattern] = NO_ACLS if znode is None else znode.with_traceback(None)
            continue
        try:
            found[pattern] = VersionedAcls((yield from decode_acls(path, znode.data)), znode.version)
        except ZnodeFormatError as error:
            found[pattern] = error
        yield None
    return found


def _shown(pattern: ResourcePattern) -> str:
    return f"{pattern.resource_type.name}:{pattern.pattern_type.name}:{pattern.name}"

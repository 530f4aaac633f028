"""The ids of one context.

In Confluent's registry: `IncrementalIdGenerator` and `LookupCache`.
"""

from collections.abc import Iterable, Mapping

from barnabas.registry.core.stored_schema import StoredSchema

__all__ = ["ContextIndex", "SubjectVersion"]

SubjectVersion = tuple[str, int]


class ContextIndex:
    """Which versions have an id, and which ids have a schema.

    An id stands for one schema for ever: equal schemas of a context share it, and no other schema
    gets it. ``max_id`` is the highest id that was ever seen. It outlives its schema: when the last
    version with that id is to be deleted for good, the log gets a record of it first
    (``kept_id``), because compaction takes the schema's own records away."""

    __slots__ = ("_holders", "_ids", "kept_id", "max_id")

    def __init__(self) -> None:
        self._holders: dict[int, dict[SubjectVersion, None]] = {}
        self._ids: dict[bytes, set[int]] = {}
        self.max_id = 0
        self.kept_id = 0

    def add(self, stored: StoredSchema) -> None:
        self._holders.setdefault(stored.id, {})[stored.subject, stored.version] = None
        self._ids.setdefault(stored.digest, set()).add(stored.id)
        self.max_id = max(self.max_id, stored.id)

    def remove(self, stored: StoredSchema) -> None:
        holders = self._holders[stored.id]
        del holders[stored.subject, stored.version]
        if not holders:
            del self._holders[stored.id]
            ids = self._ids[stored.digest]
            ids.discard(stored.id)
            if not ids:
                del self._ids[stored.digest]

    def keep_id(self, highest: int) -> None:
        """Read the record of the highest id."""
        self.kept_id = max(self.kept_id, highest)
        self.max_id = max(self.max_id, highest)

    def holders(self, schema_id: int) -> Iterable[SubjectVersion]:
        return self._holders.get(schema_id, {})

    def ids(self, digest: bytes) -> Iterable[int]:
        """The ids of a schema, lowest first: several only after an import."""
        return sorted(self._ids.get(digest, ()))

    def __len__(self) -> int:
        """How many ids stand for a schema."""
        return len(self._holders)

    @property
    def is_empty(self) -> bool:
        """Whether no version is in the context."""
        return not self._holders

    def forgets_highest(self, changes: Mapping[SubjectVersion, int | None]) -> bool:
        """Whether the log would forget the highest id if versions get other ids, or none."""
        if self.max_id <= self.kept_id:
            return False
        if any(schema_id is not None and schema_id >= self.max_id for schema_id in changes.values()):
            return False
        return all(each in changes for each in self.holders(self.max_id))

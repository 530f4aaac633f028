"""The registry: its resources around one state.

In Confluent's registry: `KafkaSchemaRegistry`.
"""

from barnabas.registry.core.compatibility import Compatibility
from barnabas.registry.core.configs import Configs
from barnabas.registry.core.contexts import Contexts
from barnabas.registry.core.decisions import LogRecord, NewRecord
from barnabas.registry.core.finder import Finder
from barnabas.registry.core.long_work import LongWork
from barnabas.registry.core.modes import Modes
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.schemas import Schemas
from barnabas.registry.core.settings import RegistrySettings
from barnabas.registry.core.small_records import noop_record
from barnabas.registry.core.subject_versions import SubjectVersions
from barnabas.registry.core.subjects import Subjects

__all__ = ["Registry"]


class Registry:
    """All operations of the API over the state that the log of ``_schemas`` makes.

    Nothing changes the state but ``apply``, which follows the log in its order. It is not safe
    for threads: one event loop calls it."""

    def __init__(self, settings: RegistrySettings | None = None) -> None:
        parts = RegistryParts(settings or RegistrySettings())
        finder = Finder(parts)
        self._parts = parts
        self._state = parts.state
        self.subject_versions = SubjectVersions(parts, finder)
        self.subjects = Subjects(parts, finder)
        self.schemas = Schemas(parts)
        self.compatibility = Compatibility(parts, finder)
        self.configs = Configs(parts)
        self.modes = Modes(parts)
        self.contexts = Contexts(parts)

    def apply(self, record: LogRecord) -> str | None:
        """Apply the next record of the log to the state.

        A record that is foreign, damaged, or not allowed is skipped and counted; the answer is
        the reason then, for a line in the log. It raises nothing."""
        return self._state.apply(record)

    def subject_named(self, name: str) -> str:
        """The subject that a path or a query names: its own, or the one its alias stands for.

        Operations take subjects as they are: rights are checked for the subject that is meant, so
        aliases are replaced before. An alias without a context is in that of its
        subject, and does not lead to another alias."""
        return self._parts.subject_named(name)

    @property
    def long_work(self) -> LongWork:
        """What operations on large schemas ask for, which may be done elsewhere."""
        return self._parts.long_work

    @property
    def schema_count(self) -> int:
        """See `RegistryState.schema_count`."""
        return self._state.schema_count

    @property
    def skipped_records(self) -> int:
        """How many records were skipped so far."""
        return self._state.skipped_records

    def repairs(self) -> tuple[NewRecord, ...]:
        """Records by which a leader undoes what a second writer wrote; usually none.

        Each decision with records has these in front, so a leader needs to write them only when
        it takes over."""
        return self._state.repairs()

    @staticmethod
    def noop() -> NewRecord:
        """A record without meaning, by which a new leader finds the end of the log."""
        return noop_record()

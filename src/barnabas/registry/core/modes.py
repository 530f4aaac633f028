"""Modes of subjects, contexts and all: ``/mode``.

In Confluent's registry: `ModeResource`.
"""

from barnabas.registry.core.batch import BatchOfRecords
from barnabas.registry.core.decisions import Answer, Decision
from barnabas.registry.core.json_values import ShapeError, json_object, optional_string
from barnabas.registry.core.mode_value import Mode
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import QualifiedSubject, is_valid_subject
from barnabas.registry.core.requests import refused_body
from barnabas.registry.core.scopes import scope_of
from barnabas.registry.core.versions import subject_not_found
from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = ["Modes"]


class Modes:
    """Reads, sets and deletes modes. No subject means the global one."""

    def __init__(self, parts: RegistryParts) -> None:
        self._parts = parts
        self._state = parts.state

    def get(self, subject: str | None = None, *, default_to_global: bool = False) -> dict[str, Answer]:
        """GET /mode and /mode/{subject}."""
        scope = scope_of(subject)
        mode = self._parts.scoped.mode_in_scope(scope) if default_to_global else self._parts.scoped.own_mode(scope)
        if mode is None:
            raise RegistryError(
                ErrorCode.SUBJECT_MODE_NOT_CONFIGURED,
                f"Subject '{scope}' does not have subject-level mode configured",
            )
        return {"mode": mode}

    def update(self, subject: str | None, body: object, *, force: bool = False) -> Decision:
        """PUT /mode and /mode/{subject} with a decoded body, which is the answer, too."""
        if subject is not None and not is_valid_subject(subject, for_schemas=False):
            raise RegistryError(ErrorCode.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")
        scope = scope_of(subject)
        mode = _mode_of(body)
        self._check_mutability()
        batch = BatchOfRecords(self._state)
        if mode is Mode.IMPORT and self._parts.scoped.mode_in_scope(scope) is not Mode.IMPORT and not force:
            self._clear_for_import(scope, batch)
        if mode is not None:
            batch.put_mode(scope, mode)
        elif self._state.scoped.mode(scope) is not None:
            batch.delete_mode(scope)
        return batch.decision(lambda: {"mode": mode})

    def delete(self, subject: str | None = None, *, recursive: bool = False) -> Decision:
        """DELETE /mode and /mode/{subject}; the answer is what was set."""
        scope = scope_of(subject)
        mode = self._parts.scoped.own_mode(scope)
        if mode is None and not recursive:
            raise subject_not_found(str(scope))
        self._check_mutability()
        named = QualifiedSubject.parse(scope or "")
        names = [scope]
        if recursive and named.is_context:
            inside = [name for name in self._state.scoped.modes() if name is not None and name != scope]
            names.extend(sorted(each for each in inside if QualifiedSubject.parse(each).context == named.context))
        batch = BatchOfRecords(self._state)
        for name in names:
            if self._state.scoped.mode(name) is not None:
                batch.delete_mode(name)
        return batch.decision(lambda: {} if mode is None else {"mode": mode})

    def _check_mutability(self) -> None:
        if not self._parts.settings.mode_mutability:
            raise RegistryError(ErrorCode.OPERATION_NOT_PERMITTED, "Mode changes are not allowed")

    def _clear_for_import(self, scope: str | None, batch: BatchOfRecords) -> None:
        """An import needs an empty place: deleted versions there are deleted for good."""
        if self._state.has_subjects(scope, deleted=False):
            raise RegistryError(ErrorCode.OPERATION_NOT_PERMITTED, "Cannot import since found existing subjects")
        subjects = sorted(self._state.subjects(scope, deleted=True))
        stored = [each for subject in subjects for _, each in sorted(self._state.versions(subject).items())]
        for each in stored:
            if self._state.referrers(each.subject, each.version):
                message = f"One or more references exist to the schema {each.key}."
                raise RegistryError(ErrorCode.REFERENCE_EXISTS, message)
        for each in stored:
            batch.delete_schema(each.subject, each.version)
        batch.clear_subject(scope)


def _mode_of(body: object) -> Mode | None:
    """The mode in a body; null takes it away. Raises RegistryError (42204)."""
    try:
        fields = json_object(body, "the body")
        text = optional_string(fields, "mode")
    except ShapeError as error:
        raise refused_body(error) from None
    if "mode" in fields and text is None:
        return None
    name = (text or "").upper()
    if name not in Mode.__members__ or name == Mode.FORWARD:
        raise RegistryError(
            ErrorCode.INVALID_MODE,
            "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT.",
        )
    return Mode[name]

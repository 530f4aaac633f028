"""The versions of a subject: ``/subjects/{subject}/versions``.

In Confluent's registry: `SubjectVersionsResource`.
"""

from barnabas.registry.core.answers import formatted_text, qualified_references
from barnabas.registry.core.batch import BatchOfRecords
from barnabas.registry.core.decisions import Answer, Decision
from barnabas.registry.core.finder import Finder
from barnabas.registry.core.paging import page
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import is_valid_subject
from barnabas.registry.core.qualified_subject import normalize as normal_name
from barnabas.registry.core.registration import Registrar
from barnabas.registry.core.requests import RegisterRequest
from barnabas.registry.core.stored_schema import StoredSchema
from barnabas.registry.core.versions import (
    find_version,
    parse_version,
    read_only,
    stored_version,
    subject_not_found,
    version_not_found,
)
from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = ["SubjectVersions"]


class SubjectVersions:
    """Registers, reads and deletes the versions of subjects.

    A version in a path is a number, ``latest``, or -1; another text is refused (42202)."""

    def __init__(self, parts: RegistryParts, finder: Finder) -> None:
        self._parts = parts
        self._state = parts.state
        self._registrar = Registrar(parts, finder)

    def register(
        self, subject: str, request: RegisterRequest, *, normalize: bool = False, force: bool = False
    ) -> Decision:
        """POST /subjects/{subject}/versions: ``id``, ``version``, ``guid`` and more."""
        if not is_valid_subject(subject, for_schemas=True, needs_name=self._parts.settings.reject_empty_subject):
            raise RegistryError(ErrorCode.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")
        return self._registrar.register(normal_name(subject), request, normalize=normalize, force=force)

    def numbers(
        self,
        subject: str,
        *,
        deleted: bool = False,
        deleted_only: bool = False,
        deleted_as_negative: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[int]:
        """GET /subjects/{subject}/versions."""
        subject = normal_name(subject)
        if not self._state.has_subjects(subject, deleted=deleted or deleted_only):
            raise subject_not_found(subject)
        versions = sorted(self._state.versions(subject).items())
        if deleted_as_negative:
            numbers = [-number if stored.deleted else number for number, stored in versions]
        elif deleted_only:
            numbers = [number for number, stored in versions if stored.deleted]
        else:
            numbers = [number for number, stored in versions if deleted or not stored.deleted]
        return page(numbers, offset, limit)

    def get(
        self,
        subject: str,
        version: str,
        *,
        deleted: bool = False,
        form: str = "",
        reference_format: str = "",
    ) -> dict[str, Answer]:
        """GET /subjects/{subject}/versions/{version}; ``form`` is the query's ``format``."""
        number = parse_version(version)
        stored = find_version(self._state, normal_name(subject), number, deleted=deleted)
        body = stored.to_json() | {"schema": formatted_text(self._parts, stored, form)}
        return body | qualified_references(stored, reference_format)

    def get_text(self, subject: str, version: str, *, deleted: bool = False, form: str = "") -> str:
        """GET /subjects/{subject}/versions/{version}/schema: only the schema's text."""
        number = parse_version(version)
        stored = find_version(self._state, normal_name(subject), number, deleted=deleted)
        return formatted_text(self._parts, stored, form)

    def referenced_by(
        self, subject: str, version: str, *, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """GET /subjects/{subject}/versions/{version}/referencedby: ids."""
        number = parse_version(version)
        stored = find_version(self._state, normal_name(subject), number, deleted=True)
        referrers = self._state.referrers(stored.subject, stored.version)
        ids = sorted({each.id for each in referrers if deleted or not each.deleted})
        return page(ids, offset, limit, self._parts.settings.schema_search_limit)

    def delete(self, subject: str, version: str, *, permanent: bool = False) -> Decision:
        """DELETE /subjects/{subject}/versions/{version}: the answer is the version."""
        subject = normal_name(subject)
        number = parse_version(version)
        stored = self._to_delete(subject, number, permanent=permanent)
        if self._parts.scoped.mode_in_scope(subject).is_read_only:
            raise read_only(subject)
        if any(permanent or not each.deleted for each in self._state.referrers(subject, stored.version)):
            message = f"One or more references exist to the schema {stored.key}."
            raise RegistryError(ErrorCode.REFERENCE_EXISTS, message)
        if permanent and not stored.deleted:
            raise RegistryError(
                ErrorCode.VERSION_NOT_SOFT_DELETED,
                f"Subject '{subject}' Version {stored.version} was not deleted first before being permanently deleted",
            )
        batch = BatchOfRecords(self._state)
        if permanent:
            batch.delete_schema(subject, stored.version)
            if len(self._state.versions(subject)) == 1:
                batch.delete_settings(subject)
        else:
            batch.put_schema(stored.with_deleted(True))
        return batch.decision(lambda: stored.version)

    def _to_delete(self, subject: str, number: int, *, permanent: bool) -> StoredSchema:
        stored = stored_version(self._state, subject, number, deleted=True)
        if stored is None:
            if not self._state.has_subjects(subject, deleted=True):
                raise subject_not_found(subject)
            raise version_not_found(number)
        if stored.deleted and not permanent:
            raise RegistryError(
                ErrorCode.VERSION_SOFT_DELETED,
                f"Subject '{subject}' Version {number} was soft deleted.Set permanent=true to delete permanently",
            )
        return stored

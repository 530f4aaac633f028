"""Subjects: ``/subjects``.

In Confluent's registry: `SubjectsResource`.
"""

from collections.abc import Mapping

from barnabas.registry.core.answers import formatted_text
from barnabas.registry.core.batch import BatchOfRecords
from barnabas.registry.core.decisions import Answer, Decision
from barnabas.registry.core.finder import Candidate, Finder
from barnabas.registry.core.keys import SchemasKey, SchemasKeyType
from barnabas.registry.core.paging import page
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import QualifiedSubject
from barnabas.registry.core.qualified_subject import normalize as normal_name
from barnabas.registry.core.requests import RegisterRequest
from barnabas.registry.core.searches import matches_prefix
from barnabas.registry.core.stored_schema import StoredSchema
from barnabas.registry.core.versions import read_only, subject_not_found
from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = ["Subjects"]


class Subjects:
    """Lists and deletes subjects, and looks schemas up in them."""

    def __init__(self, parts: RegistryParts, finder: Finder) -> None:
        self._parts = parts
        self._state = parts.state
        self._finder = finder

    def names(
        self,
        *,
        subject_prefix: str = ":*:",
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """GET /subjects."""
        found = [each for each in self._state.all_subjects() if matches_prefix(each, subject_prefix)]
        if deleted_only:
            found = [each for each in found if self._state.is_deleted(each)]
        elif not deleted:
            found = [each for each in found if not self._state.is_deleted(each)]
        return page(sorted(found), offset, limit)

    def look_up(
        self,
        subject: str,
        request: RegisterRequest,
        *,
        normalize: bool = False,
        deleted: bool = False,
        form: str = "",
    ) -> dict[str, Answer]:
        """POST /subjects/{subject}: the version under which a schema is registered."""
        subject = normal_name(subject)
        found = self._look_up(subject, request, normalize=normalize, deleted=deleted)
        if found is None and not QualifiedSubject.parse(subject).qualified_context:
            for context in self._state.contexts():
                try:
                    found = self._look_up(f":{context}:{subject}", request, normalize=normalize, deleted=deleted)
                except RegistryError:  # there it refers to what is not there
                    continue
                if found is not None:
                    break
        return self._found(found, subject, deleted=deleted, form=form)

    def latest_with_metadata(
        self, subject: str, properties: Mapping[str, str], *, deleted: bool = False, form: str = ""
    ) -> dict[str, Answer]:
        """GET /subjects/{subject}/metadata?key=...&value=...: the latest version with these."""
        subject = normal_name(subject)
        wanted = set(properties.items())
        versions = self._finder.descending(subject, deleted=deleted)
        with_metadata = (each for each in versions if each.metadata is not None)
        found = next(
            (each for each in with_metadata if each.metadata and wanted <= set(each.metadata.properties)), None
        )
        return self._found(found, subject, deleted=deleted, form=form)

    def delete(self, subject: str, *, permanent: bool = False) -> Decision:
        """DELETE /subjects/{subject}: the answer is the list of versions."""
        subject = normal_name(subject)
        versions = sorted(self._state.versions(subject).items())
        if not versions:
            raise subject_not_found(subject)
        if not permanent and all(stored.deleted for _, stored in versions):
            message = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
            raise RegistryError(ErrorCode.SUBJECT_SOFT_DELETED, message)
        if self._parts.scoped.mode_in_scope(subject).is_read_only:
            raise read_only(subject)
        numbers = [number for number, stored in versions if permanent or not stored.deleted]
        for number in numbers:
            self._check_deletion(subject, number, permanent=permanent)
        batch = BatchOfRecords(self._state)
        if permanent:
            # From the highest: versions may refer to those below them.
            for number in reversed(numbers):
                batch.delete_schema(subject, number)
            batch.delete_settings(subject)
        else:
            # Up to the highest of all, deleted or not: the record takes the place of one before,
            # and compaction must not bring back what that one deleted.
            batch.delete_subject(subject, versions[-1][0])
        return batch.decision(lambda: numbers)

    def _look_up(
        self, subject: str, request: RegisterRequest, *, normalize: bool, deleted: bool
    ) -> StoredSchema | None:
        config = self._parts.scoped.config_in_scope(subject)
        normalize = normalize or bool(config.normalize)
        candidate = Candidate.of(subject, request)
        found = self._finder.find(candidate, normalize=normalize, deleted=deleted)
        latest = self._state.latest(subject)
        if found is not None or latest is None:
            return found
        # A registration would take these from the version before, and from the configuration.
        populated = candidate.populated(config, latest, None)
        return None if populated == candidate else self._finder.find(populated, normalize=normalize, deleted=deleted)

    def _found(self, found: StoredSchema | None, subject: str, *, deleted: bool, form: str) -> dict[str, Answer]:
        if found is not None:
            return found.to_json() | {"schema": formatted_text(self._parts, found, form)}
        if not self._state.has_subjects(subject, deleted=deleted):
            raise subject_not_found(subject)
        raise RegistryError(ErrorCode.SCHEMA_NOT_FOUND, "Schema not found")

    def _check_deletion(self, subject: str, number: int, *, permanent: bool) -> None:
        referrers = self._state.referrers(subject, number)
        if any(each.subject != subject and (permanent or not each.deleted) for each in referrers):
            key = SchemasKey(SchemasKeyType.SCHEMA, subject, number)
            raise RegistryError(ErrorCode.REFERENCE_EXISTS, f"One or more references exist to the schema {key}.")
        stored = self._state.stored(subject, number)
        if permanent and stored is not None and not stored.deleted:
            message = f"Subject '{subject}' was not deleted first before being permanently deleted"
            raise RegistryError(ErrorCode.SUBJECT_NOT_SOFT_DELETED, message)

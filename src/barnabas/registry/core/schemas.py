"""Schemas by their ids: ``/schemas``.

In Confluent's registry: `SchemasResource`.
"""

from barnabas.registry.core.answers import formatted_text, qualified_references
from barnabas.registry.core.decisions import Answer
from barnabas.registry.core.paging import page
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import DEFAULT_CONTEXT, QualifiedSubject, context_of, normalize, qualify
from barnabas.registry.core.searches import matches_prefix
from barnabas.registry.core.stored_schema import StoredSchema, digest_of
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.formats.schema import SchemaType

__all__ = ["Schemas"]


class Schemas:
    """Reads schemas by id, by guid, and all of them."""

    def __init__(self, parts: RegistryParts) -> None:
        self._parts = parts
        self._state = parts.state

    def search(
        self,
        *,
        subject_prefix: str = "",
        aliases: bool = False,
        deleted: bool = False,
        latest_only: bool = False,
        rule_type: str = "",
        offset: int = 0,
        limit: int = -1,
    ) -> list[dict[str, Answer]]:
        """GET /schemas."""
        named = self._aliases(subject_prefix) if aliases else {}
        subjects = {each for each in self._state.all_subjects() if matches_prefix(each, subject_prefix)}
        found: list[dict[str, Answer]] = []
        for subject in sorted(subjects | (named.keys() & set(self._state.all_subjects()))):
            versions = [
                each for _, each in sorted(self._state.versions(subject).items()) if deleted or not each.deleted
            ]
            for stored in versions[-1:] if latest_only else versions:
                if rule_type and (stored.rule_set is None or not stored.rule_set.has_type(rule_type)):
                    continue
                found.append(stored.to_json() | ({"aliases": named[subject]} if subject in named else {}))
        return page(found, offset, limit, self._parts.settings.schema_search_limit)

    def get(
        self,
        schema_id: int,
        *,
        subject: str | None = None,
        form: str = "",
        reference_format: str = "",
        fetch_max_id: bool = False,
    ) -> dict[str, Answer]:
        """GET /schemas/ids/{id}; ``form`` is the query's ``format``."""
        stored = self._by_id(schema_id, subject)
        if stored is None:
            raise _not_found(schema_id)
        body = stored.schema_to_json() | {"schema": formatted_text(self._parts, stored, form)}
        if subject is not None:
            body |= {"subject": stored.subject, "version": stored.version}
        if fetch_max_id:
            body["maxId"] = self._state.max_id(context_of(stored.subject))
        return body | qualified_references(stored, reference_format)

    def get_text(self, schema_id: int, *, subject: str | None = None, form: str = "") -> str:
        """GET /schemas/ids/{id}/schema: only the schema's text."""
        stored = self._by_id(schema_id, subject)
        if stored is None:
            raise _not_found(schema_id)
        return formatted_text(self._parts, stored, form)

    def subjects(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[str]:
        """GET /schemas/ids/{id}/subjects."""
        versions = self._versions(schema_id, subject, deleted=deleted)
        return page(list(dict.fromkeys(each.subject for each in versions)), offset, limit)

    def versions(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[dict[str, Answer]]:
        """GET /schemas/ids/{id}/versions: pairs of ``subject`` and ``version``."""
        versions = self._versions(schema_id, subject, deleted=deleted)
        return page([{"subject": each.subject, "version": each.version} for each in versions], offset, limit)

    def get_by_guid(self, guid: str, *, form: str = "") -> dict[str, Answer]:
        """GET /schemas/guids/{guid}."""
        for context, schema_id in self._ids_of_guid(guid):
            for stored in self._preferred(context, schema_id)[:1]:
                return stored.schema_to_json() | {"schema": formatted_text(self._parts, stored, form)}
        raise _not_found(guid)

    def ids_of_guid(self, guid: str) -> list[dict[str, Answer]]:
        """GET /schemas/guids/{guid}/ids: pairs of ``context`` and ``id``."""
        return [{"context": context, "id": schema_id} for context, schema_id in sorted(self._ids_of_guid(guid))]

    def types(self) -> list[str]:
        """GET /schemas/types."""
        return list(SchemaType)

    def _by_id(self, schema_id: int, subject: str | None) -> StoredSchema | None:
        """A version with an id: of the subject, in its context, or in another one.

        A context alone, or no name, means any version there; a live one before a deleted one."""
        named = QualifiedSubject.parse(normalize(subject or ""))
        if named.is_context:
            return next(iter(self._preferred(named.context, schema_id)), None)
        contexts = [named.context]
        if named.context == DEFAULT_CONTEXT:
            contexts.extend(self._state.contexts())
        for context in contexts:
            wanted = str(QualifiedSubject(context, named.name))
            for stored in self._preferred(context, schema_id):
                if stored.subject == wanted:
                    return stored
        if named.context == DEFAULT_CONTEXT:
            return next(iter(self._preferred(DEFAULT_CONTEXT, schema_id)), None)
        return None

    def _preferred(self, context: str, schema_id: int) -> list[StoredSchema]:
        """The versions with an id: live ones first, and the highest version of a subject first."""
        return sorted(
            self._state.holders(context, schema_id), key=lambda each: (each.deleted, each.subject, -each.version)
        )

    def _versions(self, schema_id: int, subject: str | None, *, deleted: bool) -> list[StoredSchema]:
        stored = self._by_id(schema_id, subject)
        if stored is None:
            raise RegistryError(ErrorCode.SCHEMA_NOT_FOUND, "Schema not found")
        holders = self._state.holders(context_of(stored.subject), schema_id)
        return [each for each in holders if deleted or not each.deleted]

    def _ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        digest = digest_of(guid)
        if digest is None:
            return []
        contexts = [DEFAULT_CONTEXT, *self._state.contexts()]
        return [(context, ids[0]) for context in contexts if (ids := self._state.ids(context, digest))]

    def _aliases(self, prefix: str) -> dict[str, list[str]]:
        """The subjects that are meant by others' configurations, with those others."""
        found: dict[str, list[str]] = {}
        for subject, config in sorted(self._state.scoped.configs().items(), key=lambda each: each[0] or ""):
            if subject is not None and config.alias and matches_prefix(subject, prefix):
                found.setdefault(str(qualify(subject, config.alias)), []).append(subject)
        return found


def _not_found(name: int | str) -> RegistryError:
    return RegistryError(ErrorCode.SCHEMA_NOT_FOUND, f"Schema {name} not found")

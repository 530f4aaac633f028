"""Tests of compatibility: ``/compatibility``.

In Confluent's registry: `CompatibilityResource`.
"""

from barnabas.registry.core.decisions import Answer
from barnabas.registry.core.finder import Candidate, Finder
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import normalize as normal_name
from barnabas.registry.core.registration import incompatibilities
from barnabas.registry.core.requests import RegisterRequest
from barnabas.registry.core.reserved_fields import check_field_names
from barnabas.registry.core.stored_schema import StoredSchema
from barnabas.registry.core.versions import LATEST_VERSION, parse_version, stored_version, version_not_found
from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = ["Compatibility"]


class Compatibility:
    """Tests a schema against versions of a subject, and registers nothing."""

    def __init__(self, parts: RegistryParts, finder: Finder) -> None:
        self._parts = parts
        self._state = parts.state
        self._finder = finder

    def test_version(
        self, subject: str, version: str, request: RegisterRequest, *, normalize: bool = False, verbose: bool = False
    ) -> dict[str, Answer]:
        """POST /compatibility/subjects/{subject}/versions/{version}."""
        subject = normal_name(subject)
        number = parse_version(version)
        stored = stored_version(self._state, subject, number, deleted=False)
        if stored is None and number != LATEST_VERSION:
            raise version_not_found(number)
        return self._test(subject, request, [] if stored is None else [stored], normalize=normalize, verbose=verbose)

    def test_all(
        self, subject: str, request: RegisterRequest, *, normalize: bool = False, verbose: bool = False
    ) -> dict[str, Answer]:
        """POST /compatibility/subjects/{subject}/versions."""
        subject = normal_name(subject)
        oldest_first = self._finder.descending(subject, deleted=False)[::-1]
        return self._test(subject, request, oldest_first, normalize=normalize, verbose=verbose)

    def _test(
        self,
        subject: str,
        request: RegisterRequest,
        oldest_first: list[StoredSchema],
        *,
        normalize: bool,
        verbose: bool,
    ) -> dict[str, Answer]:
        config = self._parts.scoped.config_in_scope(subject)
        candidate = Candidate.of(subject, request)
        try:
            if candidate.is_empty:
                raise RegistryError(ErrorCode.INVALID_SCHEMA, "Empty schema")
            schema = self._finder.canonical(
                candidate,
                is_new=config.validate_new_schemas is not False,
                normalize=normalize or bool(config.normalize),
            )
            if config.validate_fields:
                check_field_names(schema)
            messages = incompatibilities(self._parts, schema, config, oldest_first)
        except RegistryError as error:
            if not verbose or error.code is not ErrorCode.INVALID_SCHEMA:
                raise
            messages = [error.message]
        return {"is_compatible": not messages} | ({"messages": messages} if verbose else {})

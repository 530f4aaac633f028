"""The numbers of versions in paths, and the errors about versions.

In Confluent's registry: `VersionId`.
"""

from barnabas.registry.core.qualified_subject import QualifiedSubject, qualified_context_of
from barnabas.registry.core.state import RegistryState
from barnabas.registry.core.stored_schema import StoredSchema
from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = [
    "LATEST_VERSION",
    "find_version",
    "parse_version",
    "read_only",
    "stored_version",
    "subject_not_found",
    "version_not_found",
]

LATEST_VERSION = -1
_HIGHEST = 2**31 - 1


def parse_version(text: str) -> int:
    """A number, or -1 for the latest. Raises RegistryError (42202)."""
    stripped = text.strip()
    if stripped.lower() == "latest":
        return LATEST_VERSION
    digits = stripped.removeprefix("-").removeprefix("+")
    number = int(stripped) if digits.isascii() and digits.isdecimal() and len(digits) <= 10 else 0
    if number == LATEST_VERSION or 0 < number <= _HIGHEST:
        return number
    raise RegistryError(
        ErrorCode.INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def stored_version(state: RegistryState, subject: str, version: int, *, deleted: bool) -> StoredSchema | None:
    """A version; the latest one is never a deleted one."""
    if version == LATEST_VERSION:
        return state.latest(subject)
    stored = state.stored(subject, version)
    return stored if stored is not None and (deleted or not stored.deleted) else None


def find_version(state: RegistryState, subject: str, version: int, *, deleted: bool) -> StoredSchema:
    """A version of a subject, which is looked for in all contexts if its name has none.

    Raises RegistryError (40401 or 40402)."""
    stored = stored_version(state, subject, version, deleted=deleted)
    named = QualifiedSubject.parse(subject)
    if stored is None and not named.qualified_context:
        candidates = (
            stored_version(state, f":{each}:{subject}", version, deleted=deleted) for each in state.contexts()
        )
        stored = next((each for each in candidates if each is not None), None)
    if stored is not None:
        return stored
    if not state.has_subjects(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise version_not_found(version)


def subject_not_found(subject: str) -> RegistryError:
    """No version is under that name (40401)."""
    return RegistryError(ErrorCode.SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """The subject has no such version (40402)."""
    return RegistryError(ErrorCode.VERSION_NOT_FOUND, f"Version {version} not found.")


def read_only(subject: str | None) -> RegistryError:
    """The mode forbids each write (42205)."""
    context = qualified_context_of(subject)
    message = f"Subject {'null' if subject is None else subject} in context {context} is in read-only mode"
    return RegistryError(ErrorCode.OPERATION_NOT_PERMITTED, message)

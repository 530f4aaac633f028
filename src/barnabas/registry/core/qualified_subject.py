"""Names of subjects and their contexts: ``:.context:subject``.

A name without a context is in the default context, which is called ``.``. A context alone is the
name of its configuration and of its mode; ``:.__GLOBAL:`` is that of all contexts. ``:*:`` stands
for every context in a search.

In Confluent's registry: `QualifiedSubject`.
"""

import re
from typing import NamedTuple, Self

from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = [
    "ANY_CONTEXT",
    "DEFAULT_CONTEXT",
    "GLOBAL_CONTEXT",
    "QualifiedSubject",
    "context_of",
    "context_prefix",
    "in_context",
    "is_in_scope",
    "is_valid_subject",
    "normalize",
    "qualified_context_of",
    "qualify",
]

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
ANY_CONTEXT = ":*:"

_RESERVED_NAMES = ("__GLOBAL", "__EMPTY")
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f]")


class QualifiedSubject(NamedTuple):
    """A subject's context and its name there. They sort as Confluent's registry lists them."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        if text.startswith(":."):
            context, _, name = text[1:].partition(":")
            return cls(context, name)
        if text.startswith(ANY_CONTEXT):
            return cls("*", text[len(ANY_CONTEXT) :])
        return cls(DEFAULT_CONTEXT, text)

    @property
    def qualified_context(self) -> str:
        """The prefix of all names in the context; empty for the default one."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    @property
    def is_context(self) -> bool:
        return not self.name

    @property
    def is_default_context(self) -> bool:
        return not self.name and self.context == DEFAULT_CONTEXT

    @property
    def is_global_context(self) -> bool:
        return not self.name and self.context == GLOBAL_CONTEXT

    def __str__(self) -> str:
        return self.qualified_context + self.name


def normalize(subject: str) -> str:
    """The one form of a name: that of the default context has no prefix."""
    return str(QualifiedSubject.parse(subject)) if subject.startswith(":") else subject


def context_of(subject: str | None) -> str:
    """The context of a subject; the default one for none."""
    return DEFAULT_CONTEXT if subject is None else QualifiedSubject.parse(subject).context


def qualified_context_of(subject: str | None) -> str:
    """The prefix of a subject's context, as texts of errors have it."""
    return "" if subject is None else QualifiedSubject.parse(subject).qualified_context


def context_prefix(name: str) -> str:
    """The prefix of the names in a context that a path gives, with or without colons and dot.

    Raises RegistryError (400) when the name has a colon inside."""
    bare = name.removeprefix(":").removesuffix(":")
    if ":" in bare:
        raise RegistryError(ErrorCode.BAD_REQUEST, f"Context name '{bare}' cannot contain a colon")
    return QualifiedSubject(bare if bare.startswith(".") else f".{bare}", "").qualified_context


def in_context(prefix: str, name: str) -> str:
    """A name, or the beginning of one, in a context, unless it names a context itself."""
    return name if name.startswith((":.", ANY_CONTEXT)) else prefix + name


def qualify(parent: str, subject: str) -> QualifiedSubject:
    """The subject that a reference or an alias in another subject means.

    A name without a context is in the context of its parent."""
    named = QualifiedSubject.parse(subject)
    if named.context != DEFAULT_CONTEXT:
        return named
    return QualifiedSubject(QualifiedSubject.parse(parent).context, subject)


def is_in_scope(subject: str, scope: str | None) -> bool:
    """Whether a name means a subject: itself, its context, all contexts, or no name at all."""
    if scope is None or subject == scope:
        return True
    named = QualifiedSubject.parse(scope)
    return named.is_context and (named.context == GLOBAL_CONTEXT or named.context == context_of(subject))


def is_valid_subject(subject: str, *, for_schemas: bool, needs_name: bool = False) -> bool:
    """Whether a name is allowed for schemas, or else for a configuration or a mode."""
    if _CONTROL_CHARACTERS.search(subject) or not _is_text(subject):
        return False
    named = QualifiedSubject.parse(subject)
    if named.name in _RESERVED_NAMES or (needs_name and named.name in ("", "*")):
        return False
    return not (for_schemas and named.context == GLOBAL_CONTEXT)


def _is_text(subject: str) -> bool:
    try:
        subject.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True

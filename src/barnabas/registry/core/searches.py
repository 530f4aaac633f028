"""Searches by the beginnings of subjects' names.

In Confluent's registry: `LookupFilter` and the prefixes of `QualifiedSubject`.
"""

from barnabas.registry.core.qualified_subject import ANY_CONTEXT, QualifiedSubject

__all__ = ["matches_prefix"]


def matches_prefix(subject: str, prefix: str) -> bool:
    """Whether a subject is meant by ``subjectPrefix``.

    ``:*:`` and a prefix mean the names of all contexts; ``:.context:`` and a prefix those of one;
    an unfinished context all contexts that begin so; a plain prefix those of the default one."""
    if prefix == ANY_CONTEXT:
        return True
    named = QualifiedSubject.parse(subject)
    if prefix.startswith(ANY_CONTEXT):
        return named.name.startswith(prefix[len(ANY_CONTEXT) :])
    wanted = QualifiedSubject.parse(prefix)
    if prefix.startswith(":.") and ":" not in prefix[1:]:
        return named.context.startswith(wanted.context)
    return named.context == wanted.context and named.name.startswith(wanted.name)

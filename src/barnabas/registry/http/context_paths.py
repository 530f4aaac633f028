"""Paths below a context: ``/contexts/.name/subjects/a`` is ``/subjects/:.name:a``.

A client that has such a path in its address works in one context.

In Confluent's registry: `ContextFilter`.
"""

from collections.abc import Mapping, Sequence

from barnabas.registry.core.qualified_subject import context_prefix, in_context

__all__ = ["PREFIX", "has_paths_in_contexts", "in_path_of_context"]

PREFIX = "/contexts/{context}"
_Query = Mapping[str, Sequence[str]]


def has_paths_in_contexts(operation_path: str) -> bool:
    """Whether an operation can be asked for below a context: all can but that on a context itself.

    Without a subject, ``/config`` and ``/mode`` are those of the context there."""
    return "{context}" not in operation_path and operation_path not in ("/config", "/mode")


def in_path_of_context(operation_path: str, path: Mapping[str, str], query: _Query) -> tuple[Mapping[str, str], _Query]:
    """The subjects of a path and of a query below a context, with the context in their names.

    Raises RegistryError (400) when the name of the context has a colon inside."""
    if "context" not in path or "{context}" in operation_path:
        return path, query
    prefix = context_prefix(path["context"])
    if "{subject}" in operation_path:
        return {**path, "subject": in_context(prefix, path.get("subject", ""))}, query
    if operation_path.startswith("/schemas/ids/"):
        return path, {**query, "subject": [in_context(prefix, each) for each in query.get("subject", [""])]}
    if operation_path in ("/schemas", "/subjects"):
        return path, {**query, "subjectPrefix": [in_context(prefix, each) for each in query.get("subjectPrefix", [""])]}
    return path, query

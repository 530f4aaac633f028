"""Contexts: ``/contexts``.

In Confluent's registry: `ContextsResource`.
"""

from barnabas.registry.core.batch import BatchOfRecords
from barnabas.registry.core.decisions import Decision
from barnabas.registry.core.paging import page
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import DEFAULT_CONTEXT, QualifiedSubject
from barnabas.registry.errors import ErrorCode, RegistryError

__all__ = ["Contexts"]


class Contexts:
    """Lists contexts and deletes empty ones."""

    def __init__(self, parts: RegistryParts) -> None:
        self._parts = parts
        self._state = parts.state

    def names(self, *, context_prefix: str = "", offset: int = 0, limit: int = -1) -> list[str]:
        """GET /contexts."""
        contexts = [DEFAULT_CONTEXT, *self._state.contexts()]
        return page([each for each in contexts if each.startswith(context_prefix)], offset, limit)

    def delete(self, context: str) -> Decision:
        """DELETE /contexts/{context}; the answer is None, for HTTP's status 204."""
        named = QualifiedSubject.parse(context if context.startswith(":") else f":{context}:")
        scope = named.qualified_context
        if not scope or not named.is_context or self._state.has_subjects(scope, deleted=True):
            raise RegistryError(ErrorCode.CONTEXT_NOT_EMPTY, f"The specified context '{context}' is not empty.")
        batch = BatchOfRecords(self._state)
        if self._state.has_context_record(named.context):
            batch.delete_context(named.context)
        return batch.decision(lambda: None)

"""Contexts: ``/contexts`` (ContextsResource)."""

from ..errors import ErrorCode, RegistryError
from .batch import Batch
from .decisions import Decision
from .paging import page
from .parts import Parts
from .qualified_subject import DEFAULT_CONTEXT, QualifiedSubject

__all__ = ["Contexts"]


class Contexts:
    """Lists contexts and deletes empty ones."""

    def __init__(self, parts: Parts) -> None:
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
        batch = Batch(self._state)
        if self._state.has_context_record(named.context):
            batch.delete_context(named.context)
        return batch.decision(lambda: None)

"""Contexts: ``/contexts`` (ContextsResource)."""

from .decisions import Decision
from .parts import Parts

__all__ = ["Contexts"]


class Contexts:
    """Lists contexts and deletes empty ones."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def names(self, *, context_prefix: str = "", offset: int = 0, limit: int = -1) -> list[str]:
        """GET /contexts."""
        raise NotImplementedError

    def delete(self, context: str) -> Decision:
        """DELETE /contexts/{context}; the answer is None, for HTTP's status 204."""
        raise NotImplementedError

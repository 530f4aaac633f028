"""Modes of subjects, contexts and all: ``/mode`` (ModeResource)."""

from .decisions import Answer, Decision
from .parts import Parts

__all__ = ["Modes"]


class Modes:
    """Reads, sets and deletes modes. No subject means the global one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def get(self, subject: str | None = None, *, default_to_global: bool = False) -> dict[str, Answer]:
        """GET /mode and /mode/{subject}."""
        raise NotImplementedError

    def update(self, subject: str | None, body: object, *, force: bool = False) -> Decision:
        """PUT /mode and /mode/{subject} with a decoded body, which is the answer, too."""
        raise NotImplementedError

    def delete(self, subject: str | None = None, *, recursive: bool = False) -> Decision:
        """DELETE /mode and /mode/{subject}; the answer is what was set."""
        raise NotImplementedError

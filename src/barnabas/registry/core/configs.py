"""Configurations of subjects, contexts and all: ``/config`` (ConfigResource)."""

from .decisions import Answer, Decision
from .parts import Parts

__all__ = ["Configs"]


class Configs:
    """Reads, merges and deletes configurations. No subject means the global one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def get(self, subject: str | None = None, *, default_to_global: bool = False) -> dict[str, Answer]:
        """GET /config and /config/{subject}."""
        raise NotImplementedError

    def update(self, subject: str | None, body: object) -> Decision:
        """PUT /config and /config/{subject} with a decoded body; the answer is the merged one."""
        raise NotImplementedError

    def delete(self, subject: str | None = None) -> Decision:
        """DELETE /config and /config/{subject}; the answer is what was set."""
        raise NotImplementedError

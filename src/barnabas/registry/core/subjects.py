"""Subjects: ``/subjects`` (SubjectsResource)."""

from collections.abc import Mapping

from .decisions import Answer, Decision
from .parts import Parts
from .requests import RegisterRequest

__all__ = ["Subjects"]


class Subjects:
    """Lists and deletes subjects, and looks schemas up in them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def names(
        self,
        *,
        subject_prefix: str = ":*:",
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """GET /subjects."""
        raise NotImplementedError

    def look_up(
        self,
        subject: str,
        request: RegisterRequest,
        *,
        normalize: bool = False,
        deleted: bool = False,
        form: str = "",
    ) -> dict[str, Answer]:
        """POST /subjects/{subject}: the version under which a schema is registered."""
        raise NotImplementedError

    def latest_with_metadata(
        self, subject: str, properties: Mapping[str, str], *, deleted: bool = False, form: str = ""
    ) -> dict[str, Answer]:
        """GET /subjects/{subject}/metadata?key=...&value=...: the latest version with these."""
        raise NotImplementedError

    def delete(self, subject: str, *, permanent: bool = False) -> Decision:
        """DELETE /subjects/{subject}: the answer is the list of versions."""
        raise NotImplementedError

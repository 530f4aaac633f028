"""The versions of a subject: ``/subjects/{subject}/versions`` (SubjectVersionsResource)."""

from .decisions import Answer, Decision
from .parts import Parts
from .requests import RegisterRequest

__all__ = ["SubjectVersions"]


class SubjectVersions:
    """Registers, reads and deletes the versions of subjects.

    A version in a path is a number, ``latest``, or -1; another text is refused (42202)."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def register(
        self, subject: str, request: RegisterRequest, *, normalize: bool = False, force: bool = False
    ) -> Decision:
        """POST /subjects/{subject}/versions: ``id``, ``version``, ``guid`` and more."""
        raise NotImplementedError

    def numbers(
        self,
        subject: str,
        *,
        deleted: bool = False,
        deleted_only: bool = False,
        deleted_as_negative: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[int]:
        """GET /subjects/{subject}/versions."""
        raise NotImplementedError

    def get(
        self,
        subject: str,
        version: str,
        *,
        deleted: bool = False,
        form: str = "",
        reference_format: str = "",
    ) -> dict[str, Answer]:
        """GET /subjects/{subject}/versions/{version}; ``form`` is the query's ``format``."""
        raise NotImplementedError

    def get_text(self, subject: str, version: str, *, deleted: bool = False, form: str = "") -> str:
        """GET /subjects/{subject}/versions/{version}/schema: only the schema's text."""
        raise NotImplementedError

    def referenced_by(
        self, subject: str, version: str, *, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[int]:
        """GET /subjects/{subject}/versions/{version}/referencedby: ids."""
        raise NotImplementedError

    def delete(self, subject: str, version: str, *, permanent: bool = False) -> Decision:
        """DELETE /subjects/{subject}/versions/{version}: the answer is the version."""
        raise NotImplementedError

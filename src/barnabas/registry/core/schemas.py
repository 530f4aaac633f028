"""Schemas by their ids: ``/schemas`` (SchemasResource)."""

from .decisions import Answer
from .parts import Parts

__all__ = ["Schemas"]


class Schemas:
    """Reads schemas by id, by guid, and all of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def search(
        self,
        *,
        subject_prefix: str = "",
        aliases: bool = False,
        deleted: bool = False,
        latest_only: bool = False,
        rule_type: str = "",
        offset: int = 0,
        limit: int = -1,
    ) -> list[dict[str, Answer]]:
        """GET /schemas."""
        raise NotImplementedError

    def get(
        self,
        schema_id: int,
        *,
        subject: str | None = None,
        form: str = "",
        reference_format: str = "",
        fetch_max_id: bool = False,
    ) -> dict[str, Answer]:
        """GET /schemas/ids/{id}; ``form`` is the query's ``format``."""
        raise NotImplementedError

    def get_text(self, schema_id: int, *, subject: str | None = None, form: str = "") -> str:
        """GET /schemas/ids/{id}/schema: only the schema's text."""
        raise NotImplementedError

    def subjects(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[str]:
        """GET /schemas/ids/{id}/subjects."""
        raise NotImplementedError

    def versions(
        self, schema_id: int, *, subject: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[dict[str, Answer]]:
        """GET /schemas/ids/{id}/versions: pairs of ``subject`` and ``version``."""
        raise NotImplementedError

    def get_by_guid(self, guid: str, *, form: str = "") -> dict[str, Answer]:
        """GET /schemas/guids/{guid}."""
        raise NotImplementedError

    def ids_of_guid(self, guid: str) -> list[dict[str, Answer]]:
        """GET /schemas/guids/{guid}/ids: pairs of ``context`` and ``id``."""
        raise NotImplementedError

    def types(self) -> list[str]:
        """GET /schemas/types."""
        raise NotImplementedError

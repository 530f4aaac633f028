"""Tests of compatibility: ``/compatibility`` (CompatibilityResource)."""

from .decisions import Answer
from .parts import Parts
from .requests import RegisterRequest

__all__ = ["Compatibility"]


class Compatibility:
    """Tests a schema against versions of a subject, and registers nothing."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def test_version(
        self, subject: str, version: str, request: RegisterRequest, *, normalize: bool = False, verbose: bool = False
    ) -> dict[str, Answer]:
        """POST /compatibility/subjects/{subject}/versions/{version}."""
        raise NotImplementedError

    def test_all(
        self, subject: str, request: RegisterRequest, *, normalize: bool = False, verbose: bool = False
    ) -> dict[str, Answer]:
        """POST /compatibility/subjects/{subject}/versions."""
        raise NotImplementedError

"""Work of a decision that takes too long for the event loop: large schemas are parsed and compared.

A decision asks `LongWork` for what such work finds. Where its caller can run work elsewhere
(`LongWork.kept_in`), the decision ends with `NotDoneYetError`. The caller runs the work on a
thread, keeps the outcome, and decides again. A decision changes nothing, so this is safe; the work
is pure, so its outcome is the same. For small schemas the work is done at once.

Confluent's registry has no counterpart: each request has a thread.
"""

from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from barnabas.registry.formats.compatibility import check_compatibility
from barnabas.registry.formats.schema import CompatibilityLevel, InvalidSchemaError, ParsedSchema

__all__ = ["FinishedWork", "LongWork", "NotDoneYetError"]

T = TypeVar("T")

_SHORT_CHARACTERS = 8 * 1024
"""Schemas of so much text in all are parsed and compared at once, in some milliseconds."""

FinishedWork = MutableMapping[Hashable, object]
"""What the work of one request found, by what was asked."""


@dataclass(frozen=True, slots=True)
class _Failure:
    error: InvalidSchemaError


class NotDoneYetError(Exception):
    """A decision needs the outcome of work that is still to be done."""

    def __init__(self, key: Hashable, work: Callable[[], object]) -> None:
        super().__init__("a decision waits for long work")
        self.key = key
        self._work = work

    def run(self) -> object:
        """Do it, on any thread; returns the outcome to be kept."""
        try:
            return self._work()
        except InvalidSchemaError as error:
            return _Failure(error)
        except RecursionError:
            return _Failure(InvalidSchemaError("it is nested too deeply"))


class LongWork:
    """Used on one thread; only the work itself may run on another one."""

    def __init__(self, short_characters: int = _SHORT_CHARACTERS) -> None:
        self._short_characters = short_characters
        self._finished: FinishedWork | None = None

    @contextmanager
    def kept_in(self, finished: FinishedWork) -> Iterator[None]:
        """Inside, long work ends the decision, unless its outcome is among these."""
        self._finished = finished
        try:
            yield
        finally:
            self._finished = None

    def outcome(self, key: Hashable, characters: int, work: Callable[[], T]) -> T:
        """What ``work`` returns, on schemas with so much text.

        Raises InvalidSchemaError as the work does, and `NotDoneYetError`."""
        if self._finished is None or characters <= self._short_characters:
            return work()
        if key not in self._finished:
            raise NotDoneYetError(key, work)
        found = self._finished[key]
        if isinstance(found, _Failure):
            raise found.error
        return cast("T", found)

    def normalized(self, parsed: ParsedSchema) -> ParsedSchema:
        """Its normal form. Raises InvalidSchemaError, RecursionError and `NotDoneYetError`."""
        return self.outcome(("normalized", _identity(parsed)), _characters(parsed), parsed.normalized)

    def formatted(self, parsed: ParsedSchema, form: str) -> str:
        """Its text in a form. Raises InvalidSchemaError and `NotDoneYetError`."""
        return self.outcome((form, _identity(parsed)), _characters(parsed), partial(parsed.formatted, form))

    def incompatibilities(
        self, level: CompatibilityLevel, new: ParsedSchema, versions_oldest_first: Sequence[tuple[int, ParsedSchema]]
    ) -> list[str]:
        """Why a schema does not fit the versions before it. Raises `NotDoneYetError`."""
        versions = tuple((number, _identity(old)) for number, old in versions_oldest_first)
        characters = _characters(new) + sum(_characters(old) for _, old in versions_oldest_first)
        work = partial(check_compatibility, level, new, versions_oldest_first)
        return self.outcome((level, _identity(new), versions), characters, work)


def _identity(parsed: ParsedSchema) -> Hashable:
    return parsed.schema_type, parsed.text, tuple(parsed.references), tuple(parsed.resolved.items())


def _characters(parsed: ParsedSchema) -> int:
    return len(parsed.text) + sum(map(len, parsed.resolved.values()))

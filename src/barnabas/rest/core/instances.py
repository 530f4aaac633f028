"""The consumer instances of version 2: their names, what they were made with, and their ends by
time. Pure.

An instance belongs to a group, holds one format, and ends when no request came for
``consumer.instance.timeout.ms``. An instance in use does not end.

In Confluent's proxy: KafkaConsumerManager and ConsumerInstanceConfig.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from barnabas.rest.core.embedded import EmbeddedFormat
from barnabas.rest.errors import RestCode, RestError

__all__ = ["InstanceConfig", "InstanceTable", "read_instance_config"]

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9._~-]{1,200}")
_RESETS = ("earliest", "latest", "none")
_KNOWN = {
    *("id", "name", "format", "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes"),
    *("consumer.request.timeout.ms", "responseMinBytes", "requestWaitMs"),
}


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """What a request for an instance asks."""

    name: str | None
    format: EmbeddedFormat
    auto_offset_reset: str
    auto_commit: bool
    fetch_min_bytes: int | None
    request_timeout_ms: int | None


def read_instance_config(document: Any) -> InstanceConfig:
    """What the body of a request says; an empty one is all defaults. Raises `RestError`."""
    given = {} if document is None else document
    if not isinstance(given, Mapping):
        raise _wrong("an object is expected")
    if unknown := set(given) - _KNOWN:
        raise _wrong(f"{min(unknown)} is not known")
    name = given.get("id") if given.get("id") is not None else given.get("name")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise _wrong("the name has letters, digits and . _ ~ - only, 200 at most")
    reset = str(given.get("auto.offset.reset") or "latest")
    if reset not in _RESETS:
        raise _wrong(f"auto.offset.reset={reset[:50]}: one of {', '.join(_RESETS)} is expected")
    commit = str(given.get("auto.commit.enable", "true")).lower()
    if commit not in ("true", "false"):
        raise _wrong(f"auto.commit.enable={commit[:50]}: true or false is expected")
    form = str(given.get("format") or "binary")
    try:
        embedded = EmbeddedFormat.of(form)
    except RestError:
        raise _wrong(f"format={form[:50]}") from None
    if embedded is EmbeddedFormat.STRING:
        raise _wrong("format=string is of version 3 only")
    return InstanceConfig(
        name,
        embedded,
        reset,
        commit == "true",
        _number(given, "fetch.min.bytes", "responseMinBytes", -1),
        _number(given, "consumer.request.timeout.ms", "requestWaitMs", 0),
    )


def _number(given: Mapping[str, Any], name: str, old_name: str, least: int) -> int | None:
    value = given.get(name, given.get(old_name))
    if value is None:
        return None
    try:
        number = int(value) if not isinstance(value, bool | float) else least - 1
    except (ValueError, TypeError):
        number = least - 1
    if not least <= number < 1 << 31:
        raise _wrong(f"{name}: a number of at least {least} is expected")
    return number


def _wrong(reason: str) -> RestError:
    return RestError(RestCode.INVALID_CONSUMER_CONFIG, f"Invalid consumer configuration: {reason}")


@dataclass(slots=True)
class _Entry(Generic[T]):
    instance: T
    expires_ms: int
    in_use: int = 0


class InstanceTable(Generic[T]):
    """The instances by group and name."""

    def __init__(self, timeout_ms: int, most: int) -> None:
        self._timeout_ms = timeout_ms
        self._most = most
        self._entries: dict[tuple[str, str], _Entry[T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def check_room(self, group: str, name: str) -> None:
        """Raise `RestError` where the name is taken, or where there are too many."""
        if (group, name) in self._entries:
            raise RestError(
                RestCode.CONSUMER_EXISTS,
                "Consumer with specified consumer ID already exists in the specified consumer group.",
            )
        if len(self._entries) >= self._most:
            raise RestError(
                RestCode.TOO_MANY_REQUESTS, f"there are {self._most} consumer instances already: delete one first"
            )

    def add(self, group: str, name: str, instance: T, now_ms: int) -> None:
        """Keep an instance. Raises as `check_room`."""
        self.check_room(group, name)
        self._entries[group, name] = _Entry(instance, now_ms + self._timeout_ms)

    def begin_use(self, group: str, name: str) -> T:
        """The instance, which does not end before `end_use`. Raises `RestError`."""
        entry = self._entry(group, name)
        entry.in_use += 1
        return entry.instance

    def end_use(self, group: str, name: str, now_ms: int) -> None:
        """A request has ended: the time begins again."""
        entry = self._entries.get((group, name))
        if entry is not None:
            entry.in_use -= 1
            entry.expires_ms = now_ms + self._timeout_ms

    def remove(self, group: str, name: str) -> T:
        """Forget an instance, and return it. Raises `RestError`."""
        instance = self._entry(group, name).instance
        del self._entries[group, name]
        return instance

    def expire(self, now_ms: int) -> list[T]:
        """Forget the instances whose time is over, and return them."""
        over = [key for key, entry in self._entries.items() if not entry.in_use and entry.expires_ms <= now_ms]
        return [self._entries.pop(key).instance for key in over]

    def clear(self) -> list[T]:
        """Forget all instances, and return them."""
        found = [entry.instance for entry in self._entries.values()]
        self._entries.clear()
        return found

    def _entry(self, group: str, name: str) -> _Entry[T]:
        entry = self._entries.get((group, name))
        if entry is None:
            raise RestError(RestCode.CONSUMER_INSTANCE_NOT_FOUND, "Consumer instance not found.")
        return entry

"""What ``barnabas configs`` is about, an entity, and what is to change: shared by
configurations and quotas."""

import re
from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.cli.connection.properties import properties_file

__all__ = ["Entity", "parse_changes"]

_NAME = re.compile(r"[a-zA-Z0-9._-]*")


class Entity(NamedTuple):
    """What a command is about; no name means all of the kind, an empty one the kind's default."""

    kind: str
    name: str | None


def parse_changes(added: str | None, file: str | None, deleted: list[str]) -> dict[str, str | None]:
    """``k1=v1,k2=[v1,v2],k3=`` and names to delete, as new values and None.

    Values in brackets may hold commas."""
    changes: dict[str, str | None] = dict(properties_file(file))
    for pair in re.split(r",(?=[^\]]*(?:\[|$))", added) if added else ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError('Invalid entity config: all configs to be added must be in the format "key=val".')
        changes[name.strip()] = value.replace("[", "").replace("]", "").strip()
    for name in changes:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"Invalid character found for config key: {name}")
    for name in (part.strip() for text in deleted for part in text.split(",")):
        if name in changes:
            raise ConfigError(f"{name} cannot be added and deleted at once")
        changes[name] = None
    return changes

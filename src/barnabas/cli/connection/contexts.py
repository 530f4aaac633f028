"""Contexts: clusters by name, so that commands need no ``--bootstrap-server``.

They lie in a file of the user's configuration folder that only the user can read; their secrets are
in the keyring where there is one. ``BARNABAS_CONTEXT`` chooses one for a shell,
``barnabas context use`` for all; an option on the command line is always stronger, and a context's
credentials go to its own brokers only.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.base.json_text import parse_json
from barnabas.base.private_files import make_private_dirs
from barnabas.base.user_folders import user_folder
from barnabas.cli.connection.credentials import open_keyring

__all__ = [
    "CONTEXT_VARIABLE",
    "Context",
    "contexts_file",
    "current_context",
    "keyring_service",
    "load_contexts",
    "save_contexts",
]

CONTEXT_VARIABLE = "BARNABAS_CONTEXT"


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster: its brokers, and how to connect to them.

    ``command_config`` is a .properties file or None. ``properties`` are stronger than the file's;
    the values of those in ``in_keyring`` are in the keyring. ``id`` is a random one of this entry,
    so that no other context has its secrets; "" without secrets there.
    """

    name: str
    bootstrap_server: str
    command_config: str | None = None
    properties: dict[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    in_keyring: list[str] = field(default_factory=list)
    id: str = ""

    @property
    def service(self) -> str:
        """The name under which the keyring has its secrets."""
        return keyring_service(self.name, self.id)

    def secrets(self) -> dict[str, str]:
        """What the keyring has of it. Raises `BarnabasError`."""
        if not self.in_keyring:
            return {}
        keyring = open_keyring()
        if keyring is None:
            raise BarnabasError(
                f"{', '.join(self.in_keyring)} of context {self.name} is in the keyring, and no keyring can be used here: "
                f"{install_command('keyring')}, or give it again with barnabas context add"
            )
        return {name: keyring.find(self.name, self.service, name) for name in self.in_keyring}


def current_context() -> Context | None:
    """The context that is in use; raises `BarnabasError` when it does not exist."""
    wanted = os.environ.get(CONTEXT_VARIABLE)
    contexts, used = load_contexts()
    name = wanted or used
    if not name:
        return None
    if name not in contexts:
        known = ", ".join(contexts) or "none"
        raise BarnabasError(
            f"there is no context {name} ({CONTEXT_VARIABLE if wanted else 'barnabas context use'}): there are {known}"
        )
    return contexts[name]


def load_contexts() -> tuple[dict[str, Context], str | None]:
    """All contexts by name, and the name of the one in use."""
    path = contexts_file()
    if not os.path.exists(path):  # nor in a home of another user, which cannot be looked at
        return {}, None
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        return {name: Context(name, **entry) for name, entry in document["contexts"].items()}, document.get("used")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BarnabasError(f"{path} cannot be read: {error}; correct it or remove it") from None


def save_contexts(contexts: dict[str, Context], used: str | None) -> None:
    """Write them, for the user's eyes alone, all or nothing; raises `BarnabasError`."""
    entries = {
        name: {key: value for key, value in asdict(each).items() if key != "name" and value not in (None, {}, [], "")}
        for name, each in sorted(contexts.items())
    }
    path = contexts_file()
    draft = path.with_suffix(".new")
    try:
        make_private_dirs(path.parent)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps({"used": used, "contexts": entries}, indent=2) + "\n")
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise BarnabasError(
            f"{path} cannot be written: {error.strerror}; XDG_CONFIG_HOME may name another folder for it"
        ) from None


def keyring_service(name: str, entry_id: str) -> str:
    """The name under which the keyring has the secrets of a context."""
    return f"barnabas context {name} {entry_id}"


def contexts_file() -> Path:
    """Where they lie."""
    return user_folder("XDG_CONFIG_HOME", ".config") / "contexts.json"

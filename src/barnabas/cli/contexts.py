"""Contexts: clusters by name, so that commands need no ``--bootstrap-server``.

They lie in the user's configuration folder. ``BARNABAS_CONTEXT`` chooses one for a shell, ``barnabas context use`` for all;
an option on the command line is always stronger.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from barnabas.base.errors import BarnabasError

__all__ = ["VARIABLE", "Context", "current_context", "load_contexts", "save_contexts"]

VARIABLE = "BARNABAS_CONTEXT"


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster: its brokers, and a .properties file for connections or None."""

    name: str
    bootstrap_server: str
    command_config: str | None = None


def current_context() -> Context | None:
    """The context that is in use; raises `BarnabasError` when it does not exist."""
    wanted = os.environ.get(VARIABLE)
    if not wanted and not _path().exists():
        return None
    contexts, used = load_contexts()
    name = wanted or used
    if not name:
        return None
    if name not in contexts:
        known = ", ".join(contexts) or "none"
        raise BarnabasError(
            f"there is no context {name} ({VARIABLE if wanted else 'barnabas context use'}): there are {known}"
        )
    return contexts[name]


def load_contexts() -> tuple[dict[str, Context], str | None]:
    """All contexts by name, and the name of the one in use."""
    try:
        document = json.loads(_path().read_text(encoding="utf-8"))
        return {name: Context(name, **entry) for name, entry in document["contexts"].items()}, document.get("used")
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BarnabasError(f"{_path()} cannot be read: {error}; correct it or remove it") from None


def save_contexts(contexts: dict[str, Context], used: str | None) -> None:
    """Write them; raises `BarnabasError`."""
    entries = {name: {k: v for k, v in asdict(each).items() if k != "name"} for name, each in sorted(contexts.items())}
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps({"used": used, "contexts": entries}, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise BarnabasError(f"{path} cannot be written: {error.strerror}") from None


def _path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "barnabas" / "contexts.json"

"""``barnabas completion``: scripts for shells, and the words that they offer: commands, options, topics, groups, brokers.

The script asks ``barnabas completion --words WORD ...`` at each Tab, the last word being the one under the cursor. Names
come from the cluster that the command line or the context names, within a second, and from nowhere else.
"""

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from importlib import import_module

from barnabas.base.errors import BarnabasError
from barnabas.cli.common import ToolParser, properties_file
from barnabas.cli.reachability import CONNECT_TIMEOUT
from barnabas.client.admin_connection import AdminConnection

__all__ = ["main", "words"]

_TIMEOUT_MS = "1000"
_SCRIPTS = {
    "bash": """_barnabas() {
    local IFS=$'\\n'
    COMPREPLY=($(barnabas completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _barnabas barnabas
""",
    "zsh": """#compdef barnabas
_barnabas() {
    local -a found
    found=("${(@f)$(barnabas completion --words "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _barnabas barnabas
""",
    "fish": """complete -c barnabas -a '(barnabas completion --words (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
""",
}


def main(argv: list[str]) -> int:
    """Print a shell's script, or with ``--words`` what may follow."""
    if argv[:1] == ["--words"]:
        for word in words(argv[1:]):
            print(word)
        return 0
    parser = ToolParser(
        "completion",
        "Print a script that completes commands, options, topics, groups and brokers. In bash: eval "
        '"$(barnabas completion bash)"; in zsh the same with zsh; in fish: barnabas completion fish | source',
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")
    print(_SCRIPTS[parser.parse_args(argv).shell], end="")
    return 0


def words(typed: Sequence[str]) -> list[str]:
    """What may stand in place of the last of the words that follow ``barnabas``."""
    from barnabas.cli.main import COMMANDS

    *before, last = typed or [""]
    if not before:
        return [name for name in COMMANDS if name.startswith(last)]
    command = before[0]
    if command not in COMMANDS:
        return []
    if last.startswith("-"):
        return [option for option in _options(COMMANDS[command].module) if option.startswith(last)]
    find = _NAMES.get(before[-1])
    if find is None:
        return []
    with contextlib.suppress(BarnabasError, OSError), _connection(before) as connection:
        return sorted(name for name in find(connection) if name.startswith(last))
    return []


def _options(module: str) -> list[str]:
    """A command's options, as its help lists them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        import_module(f"barnabas.cli.{module}").main(["--help"])
    return list(dict.fromkeys(re.findall(r"(?<![\w-])--[A-Za-z][\w.-]*", shown.getvalue())))


def _connection(before: Sequence[str]) -> AdminConnection:
    from barnabas.cli.contexts import current_context

    def value(*options: str) -> str | None:
        return next((before[before.index(option) + 1] for option in options if option in before[:-1]), None)

    servers = value("--bootstrap-server", "--broker-list", "-b")
    context = None if servers else current_context()
    config = value("--command-config", "--consumer.config", "--producer.config", "-F") or context
    servers = servers or (context.bootstrap_server if context else "localhost:9092")
    return AdminConnection(servers, {**properties_file(config), CONNECT_TIMEOUT: _TIMEOUT_MS})


def _topics(connection: AdminConnection) -> list[str]:
    return [topic.name or "" for topic in connection.metadata().topics]


def _groups(connection: AdminConnection) -> list[str]:
    from barnabas.client.groups import list_groups

    return [group.group_id for group in list_groups(connection)]


def _brokers(connection: AdminConnection) -> list[str]:
    return [str(broker.id) for broker in connection.describe_cluster().brokers]


def _addresses(connection: AdminConnection) -> list[str]:
    return [f"{broker.host}:{broker.port}" for broker in connection.describe_cluster().brokers]


_NAMES: dict[str, Callable[[AdminConnection], list[str]]] = {
    **dict.fromkeys(("--topic", "tail", "cat", "--topics"), _topics),
    **dict.fromkeys(("--group", "--group-id"), _groups),
    **dict.fromkeys(("--broker", "--broker-id"), _brokers),
    "--bootstrap-server": _addresses,
    "--broker-list": _addresses,
}

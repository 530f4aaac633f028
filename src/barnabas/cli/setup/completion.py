"""``barnabas completion``: scripts for shells, and the words that they offer: commands, options,
topics, groups, brokers.

The script asks ``barnabas completion --words WORD ...`` at each Tab, the last word being the one
under the cursor. Names come from the cluster that the command line or the context names, within a
second, and from nowhere else.
"""

import contextlib
import io
import re
from collections.abc import Callable, Sequence

from barnabas.base.errors import BarnabasError
from barnabas.cli.commands import COMMANDS, command_main
from barnabas.cli.connection.contexts import current_context, load_contexts
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.terminal import print, print_lines
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.network.deadline import Deadline

__all__ = ["main", "words"]

_TIMEOUT_S = 1.0
_SCRIPTS = {
    "bash": """_barnabas() {
    local IFS=$'\\n' word
    COMPREPLY=()
    while read -r word; do
        COMPREPLY+=("$(printf %q "$word")")
    done < <(barnabas completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
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
    "fish": """function __barnabas_words
    set -l found (barnabas completion --words (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c barnabas -f -a '(__barnabas_words)'
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
    print_lines(_SCRIPTS[parser.parse_args(argv).shell], end="")
    return 0


def words(typed: Sequence[str]) -> list[str]:
    """What may stand in place of the last of the words that follow ``barnabas``, but what a
    line of text cannot hold.

    A shell takes each line for a word, and puts it into the command line.
    """
    return [word for word in _words(typed) if word.isprintable()]


def _words(typed: Sequence[str]) -> list[str]:
    *before, last = typed or [""]
    commands = [*COMMANDS, "help"]
    if before[:1] == ["help"]:  # of a command, or of an action of pipeline
        before, commands = before[1:], list(COMMANDS)
        if before not in ([], ["pipeline"]):
            return []
    if not before:
        return [name for name in commands if name.startswith(last)]
    command = before[0]
    if command not in COMMANDS:
        return []
    if last.startswith("-"):
        return [option for option in _options(before) if option.startswith(last)]
    choices = _choices(before)
    if choices:
        return [choice for choice in choices if choice.startswith(last)]
    if command == "context" and before[1:] in (["use"], ["remove"]):
        return [name for name in load_contexts()[0] if name.startswith(last)]
    find = _groups if before[-2:] == ["groups", "seek"] else _NAMES.get(before[-1])
    if find is None:
        return []
    with contextlib.suppress(BarnabasError, OSError), _connection(before) as connection:
        return sorted(name for name in find(connection) if name.startswith(last))
    return []


def _help(before: Sequence[str]) -> str:
    """The help of a command; of a pipeline's action, if one is typed."""
    command, *rest = before
    actions = [word for word in rest[:1] if command == "pipeline" and not word.startswith("-")]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        command_main(command)([*actions, "--help"])
    return shown.getvalue()


def _options(before: Sequence[str]) -> list[str]:
    """A command's options, as its help lists them."""
    return list(dict.fromkeys(re.findall(r"(?<![\w-])--[A-Za-z][\w.-]*", _help(before))))


def _choices(before: Sequence[str]) -> list[str]:
    """The values of the option before, or the actions of a command, where the help lists them."""
    option = before[-1] if before[-1].startswith("-") else ""
    if not option and len(before) > 1:
        return []
    shown = _help(before)
    usage = " ".join(shown.partition("\n\n")[0].split())
    if option:
        found = [match[1] for match in re.finditer(rf"(?<![\w-]){re.escape(option)} \{{([^}}]*)\}}", usage)]
    else:
        found = _actions(usage)
    if not found and usage.endswith(" ACTION ..."):
        return re.findall(r"^    (\w[\w-]*) {2,}", shown, re.MULTILINE)
    return found[0].split(",") if found else []


def _actions(usage: str) -> list[str]:
    """What stands in braces in a usage line, and is not the value of an option."""
    pairs = re.finditer(r"(\S+) \{([^}]*)\}", usage)
    return [match[2] for match in pairs if match[1].endswith("]") or not match[1].lstrip("[").startswith("-")]


def _connection(before: Sequence[str]) -> AdminConnection:
    def value(*options: str) -> str | None:
        return next((before[before.index(option) + 1] for option in options if option in before[:-1]), None)

    servers = value("--bootstrap-server", "--broker-list", "-b")
    context = None if servers else current_context()
    config = value("--command-config", "--consumer.config", "--producer.config", "-F") or context
    servers = servers or (context.bootstrap_server if context else None)
    if servers is None:
        raise BarnabasError("no brokers are named")
    return AdminConnection(servers, properties_file(config), Deadline(_TIMEOUT_S))


def _topics(connection: AdminConnection) -> list[str]:
    return [topic.name or "" for topic in connection.metadata().topics]


def _groups(connection: AdminConnection) -> list[str]:
    from barnabas.client.admin.groups import groups_in_part

    return [group.group_id for group in groups_in_part(connection).groups]


def _brokers(connection: AdminConnection) -> list[str]:
    return [str(broker.id) for broker in connection.describe_cluster().brokers]


def _addresses(connection: AdminConnection) -> list[str]:
    return [f"{broker.host}:{broker.port}" for broker in connection.describe_cluster().brokers]


_NAMES: dict[str, Callable[[AdminConnection], list[str]]] = {
    **dict.fromkeys(("--topic", "tail", "cat", "--topics"), _topics),
    **dict.fromkeys(("--group", "--group-id"), _groups),
    **dict.fromkeys(("--broker", "--broker-id"), _brokers),
    **dict.fromkeys(("--bootstrap-server", "--bootstrap-servers", "--broker-list"), _addresses),
}

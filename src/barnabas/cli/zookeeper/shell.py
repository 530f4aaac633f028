"""``barnabas zookeeper-shell``: ZooKeeper's shell, for one command or for a conversation.

``barnabas zookeeper-shell localhost:2181 ls /brokers/ids`` runs the command and ends with 0, or 1
when it failed. Without a command it reads them from a terminal, with history and completion, or
from a pipe. With ``--output json`` it prints a JSON document in one line for each command and each
watch event. ``-client-configuration FILE`` has the properties for TLS and SASL.
"""

import contextlib
import math
import re
import sys
from collections.abc import Iterator

from barnabas.base.errors import BarnabasError
from barnabas.base.randomness import new_random
from barnabas.cli.connection.coordination_access import ClientAccess, tls_refusal
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.options.tool_parser import ToolParser, add_connect_timeout, add_output_option
from barnabas.cli.output.terminal import print
from barnabas.cli.zookeeper.diagnosis import ASK_S, why_unserved
from barnabas.cli.zookeeper.ensemble_commands import ENSEMBLE_COMMANDS
from barnabas.cli.zookeeper.quota_commands import QUOTA_COMMANDS
from barnabas.cli.zookeeper.shell_output import JsonOutput, ShellOutput, TextOutput
from barnabas.cli.zookeeper.znode_commands import SHELL_COMMANDS, CommandError, ShellSession, describe_error
from barnabas.client.network.deadline import Deadline
from barnabas.coordination.client import BlockingClient, SessionEvent
from barnabas.coordination.client.operations import WatchEvent
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import EventType

__all__ = ["main"]

_SHELL_USAGE = {
    "connect": "host:port",
    "history": "",
    "redo": "number",
    "printwatches": "on|off",
    "close": "",
    "quit": "",
}
_OPTIONS_WITH_VALUE = ("server", "timeout", "connect-timeout", "output", "client-configuration", "zk-tls-config-file")
_COMMANDS = {**SHELL_COMMANDS, **QUOTA_COMMANDS, **ENSEMBLE_COMMANDS}
_CHANGES = frozenset(("create", "delete", "deleteall", "delquota", "reconfig", "set", "setAcl", "setquota"))
"""Commands that wait for as long as the change takes; the others have the deadline."""
_EVENT_NAMES = {
    EventType.NONE: "None",
    EventType.NODE_CREATED: "NodeCreated",
    EventType.NODE_DELETED: "NodeDeleted",
    EventType.NODE_DATA_CHANGED: "NodeDataChanged",
    EventType.NODE_CHILDREN_CHANGED: "NodeChildrenChanged",
}
_STATES = {
    SessionEvent.CREATED: "SyncConnected",
    SessionEvent.REATTACHED: "SyncConnected",
    SessionEvent.DISCONNECTED: "Disconnected",
    SessionEvent.EXPIRED: "Expired",
    SessionEvent.SASL_AUTHENTICATED: "SaslAuthenticated",
    SessionEvent.AUTH_FAILED: "AuthFailed",
}


def main(argv: list[str]) -> int:
    """Run one command, or a conversation; the exit code is that of the last command."""
    parser = ToolParser("zookeeper-shell", "Look at and change the znode tree of a coordination service.")
    parser.add_argument("server", nargs="?", metavar="HOST:PORT[/PATH]", help="the service (default localhost:2181)")
    parser.add_argument(
        "-server", "--server", dest="server_option", metavar="HOST:PORT", help="the same, as zkCli has it"
    )
    parser.add_argument(
        "-timeout", "--timeout", type=int, default=30_000, metavar="MS", help="the session's timeout (default 30000)"
    )
    parser.add_argument(
        "-client-configuration",
        "--client-configuration",
        "-zk-tls-config-file",
        "--zk-tls-config-file",
        dest="configuration",
        metavar="FILE",
        help="a file with ZooKeeper's properties for clients: TLS, and the user of SASL",
    )
    parser.add_argument(
        "-waitforconnection", action="store_true", help="no effect: a command always waits for the connection"
    )
    add_connect_timeout(parser, has_own_timeout=True)
    add_output_option(parser)
    # The command's own flags are the command's: everything after the server, or
    # after -server's value.
    options, command = _split(argv)
    given = parser.parse_args(options)
    output: ShellOutput = JsonOutput() if given.output == "json" else TextOutput()
    shell = _Shell(
        given.server_option or given.server or "localhost:2181",
        given.timeout,
        output,
        ClientAccess(properties_file(given.configuration), str(given.configuration)),
        Deadline(given.connect_timeout),
    )
    try:
        if not command:
            return shell.converse()
        with contextlib.suppress(EOFError):  # quit
            return shell.run(command)
        return 0
    finally:
        shell.close()


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    position = 0
    server_known = False
    while position < len(argv):
        word = argv[position]
        if word.lstrip("-") in _OPTIONS_WITH_VALUE and word.startswith("-"):
            server_known = server_known or "server" in word
            position += 2
        elif word.startswith("-") and not server_known:
            position += 1
        elif not server_known:
            server_known = True
            position += 1
        else:
            break
    return argv[:position], argv[position:]


class _Shell:
    def __init__(
        self, servers: str, timeout_ms: int, output: ShellOutput, access: ClientAccess, deadline: Deadline
    ) -> None:
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._print_watches = True
        self._history: list[str] = []
        self._client: BlockingClient | None = None
        self._output = output
        self._access = access
        self._deadline = deadline
        # The rest of the time is for asking what is wrong.
        self._ask_s = min(ASK_S, deadline.length_s / 5)
        self._patience_ms = math.ceil((deadline.length_s - self._ask_s) * 1000)
        self._connect(servers)

    def _connect(self, servers: str) -> None:
        self.close()
        self._output.remark(f"Connecting to {servers}")
        client = BlockingClient(
            self._access.network,
            servers,
            rng=new_random(),
            session_timeout_ms=self._timeout_ms,
            new_sasl_client=self._access.new_sasl_client,
            patience_ms=self._patience_ms,
        )
        client.client.on_session(self._session_changed)
        try:
            client.start(min(self._timeout_ms, self._patience_ms))
        except KeeperError as error:
            client.close()
            if reason := tls_refusal(servers, client.client.connection_error):
                raise reason from error
            raise BarnabasError(client.client.protocol_error or why_unserved(servers, self._ask_s)) from error
        self._servers, self._client = servers, client

    def close(self) -> None:
        """End the session; its ephemerals go."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # Watches

    def _watched(self, event: WatchEvent) -> None:
        self._announce("SyncConnected", _EVENT_NAMES.get(event.type, event.type.name), event.path)

    def _session_changed(self, event: SessionEvent) -> None:
        # The first one of a session is no news for scripts: they have one line for one command.
        if self._client is not None or (event is SessionEvent.CREATED and isinstance(self._output, TextOutput)):
            self._announce(_STATES[event], None, None)

    def _announce(self, state: str, kind: str | None, path: str | None) -> None:
        if self._print_watches:
            self._output.event(state, kind, path)

    # Commands

    def run(self, words: list[str]) -> int:
        """Run a command; 0, or 1 after a message on standard error."""
        name, *arguments = words
        try:
            if name == "redo":
                return self.run(self._again(arguments))
            if name in _SHELL_USAGE or name in ("exit", "help"):
                self._own(name, arguments)
            else:
                self._ask(name, arguments)
        except KeeperError as error:
            self._output.fail(name, self._describe(error), code=error.code.name)
            # These errors end the session.
            if error.code in (ErrorCode.SESSION_EXPIRED, ErrorCode.AUTH_FAILED):
                self.close()
            return 1
        except BarnabasError as error:
            self._output.fail(name, *error.lines)
            return 1
        self._output.end(name)
        return 0

    def _describe(self, error: KeeperError) -> str:
        """zkCli's words; where there is no connection, no identity, or a reply against the
        protocol, with the reason."""
        client, words = self._client, describe_error(error)
        if error.code is ErrorCode.AUTH_FAILED and client is not None and client.client.refusal:
            return f"{words}: {client.client.refusal}"
        if error.code is ErrorCode.MARSHALLING_ERROR and client is not None and client.client.protocol_error:
            return client.client.protocol_error
        if error.code is not ErrorCode.CONNECTION_LOSS or client is None or client.client.is_connected:
            return words
        return f"{words}: {why_unserved(self._servers, self._ask_s)}"

    def _ask(self, name: str, arguments: list[str]) -> None:
        """A command that the service answers."""
        command = _COMMANDS.get(name)
        if command is None:
            self._print_usage()
            raise CommandError(f"Command not found: {name}")
        if self._client is None:
            raise CommandError("Not connected")
        left_s = None if name in _CHANGES else self._deadline.left_s
        session = ShellSession(self._client, self._watched, self._output, left_s)
        try:
            command.run(session, command.parse(name, arguments))
        except TimeoutError:
            raise BarnabasError(f"{self._servers} did not answer within {self._deadline}") from None

    def _own(self, name: str, arguments: list[str]) -> None:
        match name:
            case "connect":
                self._connect(arguments[0] if arguments else self._servers)
            case "close":
                self.close()
            case "history":
                first = max(0, len(self._history) - 11)
                last = dict(enumerate(self._history[first:], first))
                self._output.show([f"{number} - {line}" for number, line in last.items()], {"history": last})
            case "printwatches" if arguments:
                self._print_watches = arguments[0] == "on"
            case "printwatches":
                state = "on" if self._print_watches else "off"
                self._output.show(f"printwatches is {state}", {"printwatches": state})
            case "quit" | "exit":
                raise EOFError
            case _:
                self._print_usage()

    def _again(self, arguments: list[str]) -> list[str]:
        """The command of the history that ``redo`` names."""
        if not arguments or not arguments[0].isdecimal() or int(arguments[0]) >= len(self._history) - 1:
            raise CommandError("Command index out of range")
        words = _words(self._history[int(arguments[0])])
        if words[0] == "redo":
            raise CommandError("No redoing redos")
        return words

    def _print_usage(self) -> None:
        usages = {**{name: command.usage for name, command in _COMMANDS.items()}, **_SHELL_USAGE}
        print("ZooKeeper -server host:port cmd args", file=sys.stderr)
        for name in sorted(usages, key=str.lower):
            print("", f"{name} {usages[name]}".rstrip(), sep="\t", file=sys.stderr)

    # Conversation

    def converse(self) -> int:
        """Read commands until the end of input or ``quit``."""
        code = 0
        self._output.remark("Welcome to ZooKeeper!")
        with contextlib.suppress(EOFError):
            for line in self._lines():
                words = _words(line)
                if words:
                    self._history.append(line)
                    self._deadline.restart()
                    code = self.run(words)
        return code

    def _lines(self) -> Iterator[str]:
        if not sys.stdin.isatty():
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        with contextlib.suppress(ImportError):  # Windows has no readline
            import readline

            readline.parse_and_bind("tab: complete")
            readline.set_completer_delims(" ")
            readline.set_completer(self._complete)
        while True:
            state = "CONNECTED" if self._client is not None else "CLOSED"
            try:
                yield input(f"[zk: {self._servers}({state}) {len(self._history)}] ")
            except KeyboardInterrupt:
                print()  # drops the line, as in a shell
            except EOFError:
                print()
                return

    def _complete(self, text: str, index: int) -> str | None:
        """Names of commands, and of nodes after a slash."""
        if not text.startswith("/"):
            names = [name for name in sorted({*_COMMANDS, *_SHELL_USAGE}) if name.startswith(text)]
            return names[index] if index < len(names) else None
        parent, _, prefix = text.rpartition("/")
        client = self._client
        if client is None:
            return None
        self._deadline.restart()
        try:
            children, _stat = client.call(lambda c: c.get_children(parent or "/"), self._deadline.left_s())
        except (KeeperError, TimeoutError):
            return None
        found = sorted(name for name in children if name.startswith(prefix) and name.isprintable())
        return f"{parent}/{found[index]}" if index < len(found) else None


_WORD = re.compile(r"""\s*("[^"]*"|'[^']*'|[^"'\s]\S*)""")


def _words(line: str) -> list[str]:
    """As zkCli: quotes count at a word's start only, so that JSON passes as it is typed."""
    words = [match[1] for match in _WORD.finditer(line)]
    return [word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word for word in words]

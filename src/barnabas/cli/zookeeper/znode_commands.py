"""The commands of the ZooKeeper shell that talk to the service: one function each, with
zkCli's flags and output."""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.cli.zookeeper.shell_output import ShellOutput
from barnabas.coordination.client import BlockingClient, CoordinationClient
from barnabas.coordination.client.operations import (
    Operation,
    WatchCallback,
    add_watch,
    create,
    delete,
    remove_watches,
    set_data,
)
from barnabas.coordination.client.operations import set_acl as set_acl_operation
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.opcodes import CreateMode, OpCode, Perms, WatcherType
from barnabas.wire.jute.records import (
    ACL,
    OPEN_ACL,
    Create2Response,
    CreateTTLRequest,
    GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse,
    GetEphemeralsRequest,
    GetEphemeralsResponse,
    Id,
    Stat,
    WhoAmIResponse,
)

__all__ = [
    "SHELL_COMMANDS",
    "CommandError",
    "Flags",
    "ShellCommand",
    "ShellSession",
    "describe_error",
    "get_node",
    "run_operation",
    "shell_path",
]

T = TypeVar("T")


class CommandError(BarnabasError):
    """A command with arguments that cannot be used, or that the service refused."""


class ShellSession(NamedTuple):
    """What commands work with: the connection, what receives watch events, and what
    shows results."""

    client: BlockingClient
    watch: WatchCallback
    output: ShellOutput
    left_s: Callable[[], float] | None
    """For how many seconds the command may still take; None for a command without a deadline."""

    def call(self, request: Callable[[CoordinationClient], Awaitable[T]]) -> T:
        """Wait for a request. Raises `KeeperError`, and TimeoutError at the command's deadline."""
        return self.client.call(request, None if self.left_s is None else self.left_s())


class Flags(NamedTuple):
    """A command's flags (with their values, "" for none) and the rest of its words."""

    given: dict[str, str]
    words: list[str]

    def has(self, name: str) -> bool:
        return name in self.given

    def number(self, name: str, default: int) -> int:
        """A flag's value as a number."""
        text = self.given.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise CommandError(f"-{name} {text}: a number is expected") from None


class ShellCommand(NamedTuple):
    """One command: what it takes, and the function that runs it.

    ``flags`` are the letters of flags without a value, ``valued`` of those with one; ``words`` is
    how many words must follow.
    """

    usage: str
    run: Callable[[ShellSession, Flags], None]
    words: int
    flags: str = ""
    valued: str = ""

    def parse(self, name: str, arguments: Sequence[str]) -> Flags:
        """Flags may stand anywhere; letters may share a dash."""
        given: dict[str, str] = {}
        words: list[str] = []
        rest: Iterator[str] = iter(arguments)
        for word in rest:
            # A lone minus sign, or a negative number, is a word.
            if not word.startswith("-") or not word[1:2].isalpha():
                words.append(word)
                continue
            for letter in word[1:]:
                if letter in self.valued:
                    given[letter] = next(rest, "")
                elif letter in self.flags:
                    given[letter] = ""
                else:
                    raise CommandError.of_lines(f"Unrecognized option: {word}", f"{name} {self.usage}")
        if len(words) < self.words:
            raise CommandError(f"{name} {self.usage}")
        return Flags(given, words)


def describe_error(error: KeeperError) -> str:
    """zkCli's words for a refusal."""
    words = {
        ErrorCode.NO_NODE: "Node does not exist: ",
        ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: "Ephemerals cannot have children: ",
        ErrorCode.NODE_EXISTS: "Node already exists: ",
        ErrorCode.NOT_EMPTY: "Node not empty: ",
        ErrorCode.INVALID_ACL: "Acl is not valid : ",
        ErrorCode.NO_AUTH: "Insufficient permission : ",
        ErrorCode.BAD_ARGUMENTS: "Arguments are not valid : ",
        ErrorCode.BAD_VERSION: "version No is not valid : ",
        ErrorCode.QUOTA_EXCEEDED: "Quota has exceeded : ",
        ErrorCode.UNIMPLEMENTED: "The server does not offer this: ",
    }.get(error.code)
    return f"{words}{error.path}" if words else str(error)


def _watcher(session: ShellSession, flags: Flags) -> WatchCallback | None:
    return session.watch if flags.has("w") else None


def shell_path(text: str) -> str:
    """The path, if it has the form of one."""
    if not text.startswith("/"):
        raise CommandError(f"Path must start with / character: {text}")
    if text != "/" and text.endswith("/"):
        raise CommandError(f"Path must not end with / character: {text}")
    return text


def _children(session: ShellSession, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
    names, stat = session.call(lambda client: client.get_children(path, watch))
    return sorted(names), stat


def _subtree(session: ShellSession, path: str, watch: WatchCallback | None = None) -> Iterator[str]:
    """The node and all below it, parents first, children in order.

    Nodes that go meanwhile are passed over."""
    pending = [path]
    while pending:
        current = pending.pop()
        try:
            names, _ = _children(session, current, watch)
        except KeeperError as error:
            if error.code is ErrorCode.NO_NODE and current != path:
                continue
            raise
        yield current
        prefix = current.rstrip("/")
        pending += [f"{prefix}/{name}" for name in reversed(names)]


def ls(session: ShellSession, flags: Flags) -> None:
    """Names of children."""
    path = shell_path(flags.words[0])
    if flags.has("R"):
        paths = []
        for found in _subtree(session, path, _watcher(session, flags)):
            paths.append(found)
            session.output.show(found, {"path": path, "paths": paths})
        return
    names, stat = _children(session, path, _watcher(session, flags))
    session.output.show(f"[{', '.join(names)}]", {"path": path, "children": names})
    if flags.has("s"):
        session.output.stat(stat)


def get_node(session: ShellSession, flags: Flags) -> None:
    """A node's data."""
    path = shell_path(flags.words[0])
    data, stat = session.call(lambda client: client.get(path, _watcher(session, flags)))
    session.output.path(path)
    session.output.data(data, "b" if flags.has("b") else "x" if flags.has("x") else "")
    if flags.has("s"):
        session.output.stat(stat)


def stat(session: ShellSession, flags: Flags) -> None:
    """A node's stat."""
    path = shell_path(flags.words[0])
    found = session.call(lambda client: client.exists(path, _watcher(session, flags)))
    if found is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    session.output.path(path)
    session.output.stat(found)


def create_node(session: ShellSession, flags: Flags) -> None:
    """A new node."""
    ephemeral, sequential, container, ttl = (flags.has(letter) for letter in "esct")
    if container and (ephemeral or sequential):
        raise CommandError("-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.")
    if ttl and (ephemeral or container):
        raise CommandError(f"TTLs cannot be used with {'Ephemeral' if ephemeral else 'Container'} znodes")
    mode = CreateMode.CONTAINER if container else CreateMode(2 * sequential + ephemeral)
    path = shell_path(flags.words[0])
    data = flags.words[1].encode() if len(flags.words) > 1 else None
    acl = _acl(flags.words[2]) if len(flags.words) > 2 else list(OPEN_ACL)
    operation = create(path, data, mode, acl)
    if ttl:
        mode = CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL if sequential else CreateMode.PERSISTENT_WITH_TTL
        operation = _create_with_ttl(path, data, acl, mode, flags.number("t", 0))
    elif container:
        operation.opcode = OpCode.CREATE_CONTAINER
    made, _ = run_operation(session, operation)
    session.output.show(f"Created {made}", {"path": made})


def _create_with_ttl(path: str, data: bytes | None, acl: list[ACL], mode: CreateMode, ttl_ms: int) -> Operation:
    def parse(raw: bytes, offset: int) -> tuple[str, Stat]:
        response = decode(Create2Response, raw, offset)
        return response.path, response.stat

    return Operation(
        OpCode.CREATE_TTL,
        path,
        lambda root: CreateTTLRequest(root + path, data, acl, mode, ttl_ms),
        parse,
        writes=True,
    )


def set_node(session: ShellSession, flags: Flags) -> None:
    """New data for a node; with -b they are given in base64."""
    path, data = shell_path(flags.words[0]), flags.words[1].encode()
    if flags.has("b"):
        try:
            data = base64.b64decode(data, validate=True)
        except ValueError as error:
            raise CommandError(f"set -b: the data are not base64: {error}") from None
    changed = run_operation(session, set_data(path, data, flags.number("v", -1)))
    session.output.path(path)
    if flags.has("s"):
        session.output.stat(changed)


def delete_node(session: ShellSession, flags: Flags) -> None:
    """Remove a node without children."""
    path = shell_path(flags.words[0])
    run_operation(session, delete(path, flags.number("v", -1)))
    session.output.path(path)


def delete_all(session: ShellSession, flags: Flags) -> None:
    """Remove a node with all below it; -b says how many deletions are sent at a time."""
    path, at_a_time = shell_path(flags.words[0]), flags.number("b", 1000)
    if path == "/":
        raise CommandError("the root cannot be deleted")
    if at_a_time < 1:
        raise CommandError(f"deleteall -b {at_a_time}: at least 1 is expected")
    session.output.path(path)
    left = list(_subtree(session, path))  # parents before children
    while left:
        operations = [delete(each) for each in reversed(left[-at_a_time:])]
        del left[-at_a_time:]
        for result in session.call(lambda client: client.batch(operations)):  # noqa: B023  # called at once
            # Another client was faster.
            is_gone = isinstance(result, KeeperError) and result.code is ErrorCode.NO_NODE
            if isinstance(result, Exception) and not is_gone:
                raise result


def get_node_acl(session: ShellSession, flags: Flags) -> None:
    """Who may do what."""
    path = shell_path(flags.words[0])
    acl, found = session.call(lambda client: client.get_acl(path))
    shown = [{"scheme": each.id.scheme, "id": each.id.id, "perms": _perms_text(each.perms)} for each in acl]
    lines = [line for each in shown for line in (f"'{each['scheme']},'{each['id']}", f": {each['perms']}")]
    session.output.show(lines, {"path": path, "acl": shown})
    if flags.has("s"):
        session.output.stat(found)


def set_node_acl(session: ShellSession, flags: Flags) -> None:
    """Change who may do what."""
    path, acl, version = shell_path(flags.words[0]), _acl(flags.words[1]), flags.number("v", -1)
    paths = list(_subtree(session, path)) if flags.has("R") else [path]
    for one in paths:
        changed = run_operation(session, set_acl_operation(one, acl, version))
        if flags.has("s") and not flags.has("R"):
            session.output.stat(changed)
    session.output.path(path)


_PERMS = {"c": Perms.CREATE, "d": Perms.DELETE, "r": Perms.READ, "w": Perms.WRITE, "a": Perms.ADMIN}


def _perms_text(perms: int) -> str:
    return "".join(letter for letter, bit in _PERMS.items() if perms & bit)


def _acl(text: str) -> list[ACL]:
    """``scheme:id:perms,...``; ids may hold colons, perms are letters of cdrwa."""
    entries = []
    for part in text.split(","):
        scheme, _, rest = part.strip().partition(":")
        name, colon, letters = rest.rpartition(":")
        if not colon or not letters or set(letters) - set(_PERMS):
            raise CommandError(f"{part} does not have the form scheme:id:perm, perm of the letters cdrwa")
        perms = 0
        for letter in letters:
            perms |= _PERMS[letter]
        entries.append(ACL(int(perms), Id(scheme, name)))
    return entries


def add_auth(session: ShellSession, flags: Flags) -> None:
    """Add an identity to this session."""
    scheme = flags.words[0]
    auth = flags.words[1].encode() if len(flags.words) > 1 else b""

    async def add(client: Any) -> None:
        client.add_auth(scheme, auth)

    session.call(add)


def digest(session: ShellSession, flags: Flags) -> None:
    """The id of the digest scheme for a user and password."""
    user = flags.words[0].partition(":")[0]
    hashed = hashlib.sha1(flags.words[0].encode(), usedforsecurity=False).digest()
    text = f"{user}:{base64.b64encode(hashed).decode()}"
    session.output.show(text, {"digest": text})


def sync_node(session: ShellSession, flags: Flags) -> None:
    """Wait until the server has seen all that was committed."""
    path = shell_path(flags.words[0])
    session.call(lambda client: client.sync(path))
    session.output.show("Sync is OK", {"path": path})


def whoami(session: ShellSession, _: Flags) -> None:
    """This session's identities."""
    operation = Operation(
        OpCode.WHO_AM_I, "", lambda _root: None, lambda raw, offset: decode(WhoAmIResponse, raw, offset)
    )
    found = run_operation(session, operation).client_info or ()
    lines = ["Auth scheme: User", *(f"{info.auth_scheme}: {info.user}" for info in found)]
    session.output.show(lines, {"identities": [{"scheme": info.auth_scheme, "user": info.user} for info in found]})


def get_ephemerals(session: ShellSession, flags: Flags) -> None:
    """This session's ephemeral nodes."""
    prefix = shell_path(flags.words[0]) if flags.words else "/"
    operation = Operation(
        OpCode.GET_EPHEMERALS,
        prefix,
        lambda root: GetEphemeralsRequest(root + prefix),
        lambda raw, offset: decode(GetEphemeralsResponse, raw, offset),
    )
    found = list(run_operation(session, operation).ephemerals or ())
    session.output.show(f"[{', '.join(found)}]", {"path": prefix, "ephemerals": found})


def get_all_children_number(session: ShellSession, flags: Flags) -> None:
    """How many nodes there are below a node."""
    path = shell_path(flags.words[0])
    operation = Operation(
        OpCode.GET_ALL_CHILDREN_NUMBER,
        path,
        lambda root: GetAllChildrenNumberRequest(root + path),
        lambda raw, offset: decode(GetAllChildrenNumberResponse, raw, offset),
    )
    number = run_operation(session, operation).total_number
    session.output.show(str(number), {"path": path, "number": number})


def remove_node_watches(session: ShellSession, flags: Flags) -> None:
    """Take watches on a node back; with -l without the server, if there is no connection to it."""
    path = shell_path(flags.words[0])
    kind = WatcherType.CHILDREN if flags.has("c") else WatcherType.DATA if flags.has("d") else WatcherType.ANY
    run_operation(session, remove_watches(path, kind, locally=flags.has("l")))
    session.output.path(path)


def add_node_watch(session: ShellSession, flags: Flags) -> None:
    """Watch a node until removewatches: its children, or (the default) all nodes below it."""
    modes = {"PERSISTENT": False, "PERSISTENT_RECURSIVE": True}
    mode = flags.given.get("m", "PERSISTENT_RECURSIVE").upper()
    if mode not in modes:
        raise CommandError(f"-m {mode}: PERSISTENT or PERSISTENT_RECURSIVE is expected")
    path = shell_path(flags.words[0])
    run_operation(session, add_watch(path, session.watch, recursive=modes[mode]))
    session.output.path(path)


def run_operation(session: ShellSession, operation: Operation) -> Any:
    """The operation's result."""
    return session.call(lambda client: client.run(operation))


def _version(session: ShellSession, _: Flags) -> None:
    from barnabas import __version__

    session.output.show(f"ZooKeeper CLI version: Barnabas {__version__}", {"version": f"Barnabas {__version__}"})


SHELL_COMMANDS = {
    "addWatch": ShellCommand("[-m mode] path", add_node_watch, 1, "", "m"),
    "addauth": ShellCommand("scheme auth", add_auth, 1),
    "create": ShellCommand("[-s] [-e] [-c] [-t ttl] path [data] [acl]", create_node, 1, "sec", "t"),
    "delete": ShellCommand("[-v version] path", delete_node, 1, "", "v"),
    "deleteall": ShellCommand("path [-b batch size]", delete_all, 1, "", "b"),
    "digest": ShellCommand("user:password", digest, 1),
    "get": ShellCommand("[-s] [-w] [-b] [-x] path", get_node, 1, "swbx"),
    "getAcl": ShellCommand("[-s] path", get_node_acl, 1, "s"),
    "getAllChildrenNumber": ShellCommand("path", get_all_children_number, 1),
    "getEphemerals": ShellCommand("[path]", get_ephemerals, 0),
    "ls": ShellCommand("[-s] [-w] [-R] path", ls, 1, "swR"),
    "removewatches": ShellCommand("path [-c|-d|-a] [-l]", remove_node_watches, 1, "cdal"),
    "set": ShellCommand("[-s] [-v version] [-b] path data", set_node, 2, "sb", "v"),
    "setAcl": ShellCommand("[-s] [-v version] [-R] path acl", set_node_acl, 2, "sR", "v"),
    "stat": ShellCommand("[-w] path", stat, 1, "w"),
    "sync": ShellCommand("path", sync_node, 1),
    "version": ShellCommand("", _version, 0),
    "whoami": ShellCommand("", whoami, 0),
}

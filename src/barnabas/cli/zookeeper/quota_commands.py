"""The shell's commands for quotas: the nodes below /zookeeper/quota that hold limits and
usage, as zkCli makes them."""

from collections.abc import Callable
from typing import Any

from barnabas.cli.zookeeper.znode_commands import (
    CommandError,
    Flags,
    ShellCommand,
    ShellSession,
    run_operation,
    shell_path,
)
from barnabas.coordination.client.operations import create, delete, set_data
from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["QUOTA_COMMANDS"]

_ROOT = "/zookeeper/quota"
_LIMITS, _STATS = "zookeeper_limits", "zookeeper_stats"
_FIELDS = {"n": "count", "b": "bytes", "N": "countHardLimit", "B": "byteHardLimit"}

_Limits = dict[str, int]


def _parse(data: bytes | None) -> _Limits:
    found: _Limits = {"count": -1, "bytes": -1}
    for part in (data or b"").decode("ascii", "replace").replace(";", ",").split(","):
        name, *values = part.split("=")
        if values:
            found[name] = int(values[0] or "-1")
    return found


def _text(limits: _Limits) -> str:
    """As ZooKeeper writes it: with an equals sign before the hard limits, which
    older servers need."""
    rest = sorted(name for name in limits if name not in ("count", "bytes"))
    hard = ";".join(f"{name}={limits[name]}" for name in rest)
    return f"count={limits['count']},bytes={limits['bytes']}" + (f"=;{hard}" if hard else "")


def _get(session: ShellSession, path: str) -> bytes | None:
    """A node's data; None if it is not there, too."""
    try:
        found: bytes | None = session.call(lambda client: client.get(path))[0] or b""
    except KeeperError as error:
        if error.code is not ErrorCode.NO_NODE:
            raise
        return None
    return found


def _run(session: ShellSession, operation: Any, *, unless: ErrorCode | None = None) -> None:
    try:
        run_operation(session, operation)
    except KeeperError as error:
        if error.code is not unless:
            raise


def listquota(session: ShellSession, flags: Flags) -> None:
    """The limits of a path, and what is used."""
    path = shell_path(flags.words[0])
    limits = _get(session, f"{_ROOT}{path}/{_LIMITS}")
    session.output.show(f"absolute path is {_ROOT}{path}/{_LIMITS}", {"path": path})
    if limits is None:
        raise CommandError(f"quota for {path} does not exist.")
    quota = _parse(limits)
    session.output.show(f"Output quota for {path} {_text(quota)}", {"quota": quota})
    used = _parse(_get(session, f"{_ROOT}{path}/{_STATS}"))
    session.output.show(f"Output stat for {path} {_text(used)}", {"used": used})


def setquota(session: ShellSession, flags: Flags) -> None:
    """Limit the nodes or bytes below a path: -n and -b warn in the server's log, -N and -B
    refuse with enforceQuota."""
    path = shell_path(flags.words[0])
    changes = {name: flags.number(letter, -1) for letter, name in _FIELDS.items() if flags.has(letter)}
    if not changes:
        raise CommandError("setquota -n|-b|-N|-B val path")
    if path.startswith("/zookeeper"):
        raise CommandError("cannot set a quota under /zookeeper")
    if _get(session, path) is None:
        raise KeeperError(ErrorCode.NO_NODE, path)
    _check_others(session, path)
    session.output.path(path)
    at = ""
    for name in path[1:].split("/"):
        at += "/" + name
        _run(session, create(_ROOT + at, b""), unless=ErrorCode.NODE_EXISTS)
    there = _get(session, f"{_ROOT}{path}/{_LIMITS}")
    if there is None:
        _run(session, create(f"{_ROOT}{path}/{_LIMITS}", _text({**_parse(None), **changes}).encode()))
        stats = create(f"{_ROOT}{path}/{_STATS}", b"count=0,bytes=0")
        _run(session, stats, unless=ErrorCode.NODE_EXISTS)
    else:
        _run(session, set_data(f"{_ROOT}{path}/{_LIMITS}", _text({**_parse(there), **changes}).encode()))


def _check_others(session: ShellSession, path: str) -> None:
    """A path with a quota has none above or below it, as in zkCli."""
    above = path
    while above := above[: above.rfind("/")]:
        if _get(session, f"{_ROOT}{above}/{_LIMITS}") is not None:
            raise CommandError(f"{path} has a parent {above} which has a quota")
    _each_below(session, f"{_ROOT}{path}", lambda found: _refuse_child(path, found))


def _refuse_child(path: str, found: str) -> None:
    if found.endswith("/" + _LIMITS) and found != f"{_ROOT}{path}/{_LIMITS}":
        child = found[len(_ROOT) : -len(_LIMITS) - 1]
        raise CommandError(f"{path} has a child {child} which has a quota")


def _each_below(session: ShellSession, path: str, visit: Callable[[str], None]) -> None:
    try:
        names, _ = session.call(lambda client: client.get_children(path))
    except KeeperError as error:
        if error.code is ErrorCode.NO_NODE:
            return
        raise
    for name in names:
        visit(f"{path}/{name}")
        _each_below(session, f"{path}/{name}", visit)


def delquota(session: ShellSession, flags: Flags) -> None:
    """Remove the limits that the flags name, or the whole quota."""
    path = shell_path(flags.words[0])
    limits = _get(session, f"{_ROOT}{path}/{_LIMITS}")
    if limits is None:
        raise CommandError(f"quota does not exist for {path}")
    session.output.path(path)
    dropped = {name: -1 for letter, name in _FIELDS.items() if flags.has(letter)}
    if dropped:
        _run(session, set_data(f"{_ROOT}{path}/{_LIMITS}", _text({**_parse(limits), **dropped}).encode()))
        return
    for name in (_LIMITS, _STATS):
        _run(session, delete(f"{_ROOT}{path}/{name}"), unless=ErrorCode.NO_NODE)
    while path:
        try:
            run_operation(session, delete(_ROOT + path))
        except KeeperError as error:
            if error.code not in (ErrorCode.NOT_EMPTY, ErrorCode.NO_NODE):
                raise
            return
        path = path[: path.rfind("/")]


QUOTA_COMMANDS = {
    "delquota": ShellCommand("[-n|-b|-N|-B] path", delquota, 1, "nbNB"),
    "listquota": ShellCommand("path", listquota, 1),
    "setquota": ShellCommand("-n|-b|-N|-B val path", setquota, 1, "", "nbNB"),
}

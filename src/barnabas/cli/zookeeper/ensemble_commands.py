"""The shell's commands for the members of an ensemble: config and reconfig, with zkCli's flags."""

from collections.abc import Sequence

from barnabas.cli.zookeeper.znode_commands import (
    CommandError,
    Flags,
    ShellCommand,
    ShellSession,
    get_node,
    run_operation,
)
from barnabas.coordination.client.operations import Operation
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import GetDataResponse, ReconfigRequest

__all__ = ["ENSEMBLE_COMMANDS"]

_CONFIG_PATH = "/zookeeper/config"
_RECONFIG_USAGE = (
    "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | "
    "[-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]"
)
_RECONFIG_VALUES = ("v", "file", "members", "add", "remove")


def config(session: ShellSession, flags: Flags) -> None:
    """The ensemble's members, as the service keeps them; with -c what a client needs
    to connect to them."""
    if not flags.has("c"):
        get_node(session, Flags(flags.given, [_CONFIG_PATH]))
        return
    data, _ = session.call(lambda client: client.get(_CONFIG_PATH))
    version, addresses = "0", []
    for line in (data or b"").decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name == "version":
            version = value
        elif name.startswith("server.") and ";" in value:
            host, address = value.partition(":")[0], value.rpartition(";")[2]
            port = address.rpartition(":")[2]
            given = address.rpartition(":")[0]
            addresses.append(f"{host if given in ('', '0.0.0.0') else given}:{port}")  # noqa: S104  # any address
    session.output.show(f"{version} {','.join(addresses)}", {"version": version, "addresses": addresses})


class _ReconfigCommand(ShellCommand):
    """reconfig has flags of several letters."""

    def parse(self, name: str, arguments: Sequence[str]) -> Flags:
        given: dict[str, str] = {}
        rest = iter(arguments)
        for word in rest:
            flag = word.removeprefix("-")
            if word == flag or (flag != "s" and flag not in _RECONFIG_VALUES):
                raise CommandError.of_lines(f"Unrecognized option: {word}", f"{name} {self.usage}")
            value = "" if flag == "s" else next(rest, "")
            given[flag] = f"{given[flag]},{value}" if flag in given and flag in ("add", "remove") else value
        return Flags(given, [])


def reconfig(session: ShellSession, flags: Flags) -> None:
    """Change the members of the ensemble."""
    given = flags.given
    whole = [name for name in ("file", "members") if name in given]
    parts = [name for name in ("add", "remove") if name in given]
    if len(whole) > 1 or bool(whole) == bool(parts):
        raise CommandError(f"reconfig {_RECONFIG_USAGE}")
    members: str | None = given.get("members")
    if "file" in given:
        try:
            with open(given["file"], encoding="utf-8") as file:
                lines = [line.strip() for line in file if line.strip().startswith("server.")]
        except OSError as error:
            raise CommandError(f"cannot read {given['file']}: {error.strerror}") from None
        members = ",".join(lines)
    try:
        version = int(given.get("v", "-1"), 16 if "v" in given else 10)
    except ValueError:
        raise CommandError(f"-v {given['v']}: a version in hexadecimal digits is expected") from None
    request = ReconfigRequest(given.get("add"), given.get("remove"), members, version)
    operation = Operation(
        OpCode.RECONFIG,
        _CONFIG_PATH,
        lambda _root: request,
        lambda raw, offset: decode(GetDataResponse, raw, offset),
        writes=True,
    )
    response = run_operation(session, operation)
    text = (response.data or b"").decode("utf-8", "replace")
    session.output.show(["Committed new configuration:", *text.split("\n")], {"configuration": text})
    if flags.has("s"):
        session.output.stat(response.stat)


ENSEMBLE_COMMANDS = {
    "config": ShellCommand("[-c] [-w] [-s]", config, 0, "cws"),
    "reconfig": _ReconfigCommand(_RECONFIG_USAGE, reconfig, 0),
}

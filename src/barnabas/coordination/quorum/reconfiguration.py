"""What a reconfig request makes of the present configuration.

A request is incremental (servers that join, with their lines, and servers that leave), or it gives
all lines of the new configuration. Only majorities can be changed incrementally: groups and
weights are given as a whole.

In ZooKeeper: the case ``reconfig`` of `PrepRequestProcessor`.
"""

from barnabas.base.errors import ConfigError
from barnabas.coordination.quorum.configuration import QuorumConfiguration, parse_dynamic_text
from barnabas.coordination.quorum.members import ANY_ADDRESS, QuorumServer
from barnabas.coordination.quorum.verifiers import MajorityQuorum
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.records import ReconfigRequest

__all__ = ["plan_reconfiguration"]


def plan_reconfiguration(
    request: ReconfigRequest, current: QuorumConfiguration, zxid: int, *, least_voters: int
) -> QuorumConfiguration:
    """The configuration that the request asks for.

    Its version is the zxid of the request's transaction. Raises `KeeperError`: BAD_VERSION if the
    request expects another version than the current one, BAD_ARGUMENTS for lines that cannot be
    used or too few voters, MARSHALLING_ERROR for an id that is not a number.
    """
    if request.cur_config_id not in (-1, current.version):
        raise KeeperError(ErrorCode.BAD_VERSION)
    try:
        if request.new_members is not None:
            planned = parse_dynamic_text(request.new_members.replace(",", "\n"))
        else:
            planned = _change(request, current)
    except ConfigError:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS) from None
    if len(planned.voters) < least_voters:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS)
    return planned.with_version(zxid)


def _change(request: ReconfigRequest, current: QuorumConfiguration) -> QuorumConfiguration:
    if not isinstance(current.verifier, MajorityQuorum):
        raise KeeperError(ErrorCode.BAD_ARGUMENTS)
    servers = dict(current.servers)
    for text in _parts(request.leaving_servers):
        servers.pop(_server_id(text), None)
    for text in _parts(request.joining_servers):
        server = _joining_server(text)
        if any(_share_address(server, other) for other in servers.values() if other.id != server.id):
            raise KeeperError(ErrorCode.BAD_ARGUMENTS)
        servers[server.id] = server
    return QuorumConfiguration.parse({f"server.{server.id}": server.text() for server in servers.values()})


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _server_id(text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise KeeperError(ErrorCode.MARSHALLING_ERROR)
    return int(text)


def _joining_server(text: str) -> QuorumServer:
    """The server of a line ``server.N=...``; the line must have a client port."""
    name, separator, value = text.partition("=")
    if not separator:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS)
    server = QuorumServer.parse(_server_id(name.rpartition(".")[2].strip()), value)
    if server.client is None:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS)
    return server


def _share_address(one: QuorumServer, other: QuorumServer) -> bool:
    return not _addresses(one).isdisjoint(_addresses(other))


def _addresses(server: QuorumServer) -> set[tuple[str, int]]:
    addresses = {(server.host, server.quorum_port), (server.host, server.election_port)}
    if server.client is not None:
        addresses.add((server.client.host, server.client.port))
    return {address for address in addresses if not _is_of_each_machine(address[0])}


def _is_of_each_machine(host: str) -> bool:
    """Whether the address means each machine itself.

    Apache's servers do not compare these either."""
    return host in (ANY_ADDRESS, "::", "::1", "localhost") or host.startswith("127.")

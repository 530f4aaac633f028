"""Why a coordination service gives no session: what its servers say of themselves when a client cannot work.

A member of an ensemble without a quorum takes connections and ends them. A client only sees that there is no session, as if
nothing listened there. The four-letter word ``srvr`` is answered in every state.
"""

from concurrent.futures import ThreadPoolExecutor

from barnabas.base.errors import BarnabasError
from barnabas.cli.reachability import ANSWER_S
from barnabas.cli.zookeeper_status import server_status
from barnabas.client.deadline import Deadline
from barnabas.coordination.client import ConnectString

__all__ = ["ASK_S", "require_coordination", "why_unserved"]

ASK_S = 1.0
"""How long each server may take to say what it is."""

_STATES = {
    "not serving": "is a member of an ensemble without a quorum, and serves no client",
    "read-only": "is a member of an ensemble without a quorum, and serves only clients that accept to read alone",
}


def why_unserved(connect: str, timeout_s: float = ASK_S) -> str:
    """What is wrong at the servers of a connect string, and what to do: one line."""
    servers = ConnectString.parse(connect).servers
    deadline = Deadline(timeout_s)
    with ThreadPoolExecutor(len(servers)) as pool:
        found = list(pool.map(lambda server: server_status(server, deadline), servers))
    roles = {str(each["server"]): str(each["role"]) for each in found}
    without = {server: _STATES[role] for server, role in roles.items() if role in _STATES}
    if without:
        others = [f"{server} is {role}" for server, role in roles.items() if server not in without]
        said = "; ".join([*(f"{server} {state}" for server, state in without.items()), *others])
        return (
            f"{said}. Start the other members, so that more than half of the ensemble runs; barnabas zookeeper-status "
            "HOST:PORT,... shows which do"
        )
    answering = [f"{server} ({role})" for server, role in roles.items() if not role.startswith("unreachable")]
    if answering:
        return f"{', '.join(answering)} answers, and gives no session in time: try again, or look into its log"
    return f"no coordination server answers at {connect}: is one running there?"


def require_coordination(connect: str, timeout_s: float = ANSWER_S) -> None:
    """Raise `BarnabasError` unless a coordination server answers in time."""
    from barnabas.base.randomness import new_random
    from barnabas.coordination.client import BlockingClient
    from barnabas.net.sockets import SocketNetwork
    from barnabas.wire.jute.errors import KeeperError

    with BlockingClient(SocketNetwork, connect, rng=new_random()) as client:
        try:
            client.start(round(timeout_s * 1000))
        except KeeperError:
            raise BarnabasError(client.client.protocol_error or why_unserved(connect)) from None

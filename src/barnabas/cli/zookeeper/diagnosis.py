"""Why a coordination service gives no session: what its servers say of themselves
when a client cannot work.

A member of an ensemble without a quorum takes connections and ends them. A client only sees
that there is no session, as if nothing listened there. `barnabas.client.network.server_status`
asks the servers themselves.
"""

from barnabas.base.errors import BarnabasError
from barnabas.cli.connection.reachability import ANSWER_S
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.server_status import ServingState, statuses_of
from barnabas.coordination.client import ConnectString

__all__ = ["ASK_S", "require_coordination", "why_unserved"]

ASK_S = 1.0
"""How long each server may take to say what it is."""

_STATES = {
    ServingState.NOT_SERVING: "is a member of an ensemble without a quorum, and serves no client",
    ServingState.READ_ONLY: "is a member of an ensemble without a quorum, and serves only read-only clients",
}


def why_unserved(connect: str, timeout_s: float = ASK_S) -> str:
    """What is wrong at the servers of a connect string, and what to do: one line."""
    servers = ConnectString.parse(connect).servers
    found = statuses_of(servers, Deadline(timeout_s))
    without = [f"{each.server} {_STATES[each.state]}" for each in found if each.state in _STATES]
    if without:
        others = [f"{each.server} is {each.role}" for each in found if each.state not in _STATES]
        said = "; ".join([*without, *others])
        return (
            f"{said}. Start the other members, so that more than half of the ensemble runs; barnabas zookeeper-status "
            "HOST:PORT,... shows which do"
        )
    answering = [f"{each.server} ({each.role})" for each in found if each.state is not ServingState.UNREACHABLE]
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

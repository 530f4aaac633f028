"""Rules on the ensemble: its members, and who leads.

A KRaft cluster has no ensemble: the parts are absent there, and these rules not checked.

In ZooKeeper: ``server.N`` in zoo.cfg, the words `srvr` and `mntr`.
"""

from collections.abc import Iterator, Sequence

from barnabas.doctor.evidence.cluster import BrokersPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart
from barnabas.doctor.evidence.coordination import EnsemblePart, MemberLine, ServerSessionsPart, ZnodesPart
from barnabas.doctor.evidence.part import Absent, UncheckedError
from barnabas.doctor.finding import Danger, Finding, MendingCommand, NotApplicableError
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import brokers_named, counted, some

__all__ = [
    "connect_string_is_short",
    "ensemble_is_even",
    "ensemble_without_leader",
    "members_away",
    "registrations_without_session",
    "single_server",
]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@rule("ensemble-without-leader", Danger.UNAVAILABLE, "no coordination server serves: the ensemble has no quorum")
def ensemble_without_leader(ensemble: EnsemblePart) -> Iterator[Finding]:
    """Brokers go on with what they have; no leader, topic or in-sync set can change."""
    serving = [each for each in ensemble.servers if each.is_serving is not False]
    leaders = [each.address for each in serving if each.mode == "leader"]
    if not serving and all(each.is_unreachable for each in ensemble.servers):
        yield Finding(
            tuple(ensemble.connect),
            "No coordination server answers from here: they are stopped, frozen or cut off from this machine. If they are "
            "away from the brokers, too, no partition can get another leader, and no topic can change.",
            tuple(f"{each.address}: {each.problem}" for each in ensemble.servers),
            ("see whether they run where brokers reach them, and start them if not", _status(ensemble)),
            danger=Danger.COMING,
        )
    elif not serving:
        yield Finding(
            tuple(ensemble.connect),
            "No coordination server serves clients: no partition can get another leader, and no topic can change.",
            tuple(f"{each.address}: {each.problem or each.mode}" for each in ensemble.servers),
            ("start the coordination servers, so that more than half of them run", _status(ensemble)),
        )
    elif len(leaders) > 1:
        yield Finding(
            tuple(leaders),
            f"The coordination servers follow {len(leaders)} leaders: brokers do not see the same znodes.",
            tuple(f"{each}: leader" for each in leaders),
            ("give all members the same server.N lines; they are two ensembles now", _status(ensemble)),
        )


@rule("ensemble-member-away", Danger.COMING, "a coordination server does not answer, or follows no leader")
def members_away(ensemble: EnsemblePart) -> Iterator[Finding]:
    """The ensemble works with the others, as long as they are more than half."""
    away = [each for each in ensemble.servers if each.is_serving is False]
    if away and len(away) < len(ensemble.servers):
        others = len(ensemble.servers) - len(away)
        yield Finding(
            tuple(each.address for each in away),
            f"{counted(len(away), 'coordination server does', 'coordination servers do')} not serve: "
            f"{some(each.address for each in away)}. {_spare(others, len(ensemble.servers))}",
            tuple(f"{each.address}: {each.problem or each.mode}" for each in away),
            (f"start {some(each.address for each in away)} again", _status(ensemble)),
        )


def _spare(serving: int, total: int) -> str:
    spare = serving - (total // 2 + 1)
    if spare <= 0:
        return "When one more stops, no broker can change anything."
    return f"{counted(spare, 'more server', 'more servers')} may stop."


@rule("single-coordination-server", Danger.COMING, "several brokers depend on one coordination server")
def single_server(ensemble: EnsemblePart, brokers: BrokersPart) -> Iterator[Finding]:
    """While it is away, no leader can change; when its disk is lost, so is the cluster's state.

    Where all servers run on one machine, as a developer's do, its loss takes them all anyway."""
    hosts = {view.host for view in brokers.views.values()}
    hosts |= {each.address.rpartition(":")[0].strip("[]") for each in ensemble.servers}
    if len({"localhost" if host in _LOOPBACK else host for host in hosts}) == 1:
        raise NotApplicableError("all servers run on one machine")
    is_alone = not isinstance(ensemble.members, Absent) and not ensemble.members
    alone = [each for each in ensemble.servers if each.mode == "standalone"]
    if is_alone and alone and len(brokers.views) > 1:
        yield Finding(
            (alone[0].address,),
            f"{len(brokers.views)} brokers depend on one coordination server: when its disk is lost, so are topics, "
            "configurations and ACLs.",
            (f"{alone[0].address}: standalone, and /zookeeper/config names no member",),
            ("make it an ensemble of three: see docs/how-to/run-a-cluster.md",),
        )


@rule("ensemble-even", Danger.UNTIDY, "the ensemble has an even number of voters")
def ensemble_is_even(ensemble: EnsemblePart) -> Iterator[Finding]:
    """One member more than an odd number stands no failure more, and can fail itself."""
    if isinstance(ensemble.members, Absent):
        raise UncheckedError(ensemble.members)
    voters = [each.server_id for each in ensemble.members if each.is_voter]
    if voters and len(voters) % 2 == 0:
        stands = (len(voters) - 1) // 2
        fewer = counted(len(voters) - 1, "voter", "voters")
        yield Finding(
            tuple(f"server.{each}" for each in voters),
            f"The ensemble has {len(voters)} voters, and stands the loss of {stands}, as with {fewer}: "
            "an even number only adds a server that can fail.",
            (f"/zookeeper/config: voters {', '.join(map(str, sorted(voters)))}",),
            _odd(ensemble, ensemble.members),
        )


def _odd(ensemble: EnsemblePart, members: Sequence[MemberLine]) -> tuple[MendingCommand | str, ...]:
    """How the number of voters becomes odd. ZooKeeper refuses to leave one voter."""
    voters = [each for each in members if each.is_voter]
    if len(voters) == 2:
        return ("add a third voter: a server.N line in zoo.cfg of each server, which start again one after the other",)
    leaving = max(voters, key=lambda each: (_readiness(ensemble, each), each.server_id))
    at = f" at {leaving.client_address}" if leaving.client_address else ""
    return (
        f"add a voter, or take one out (server.{leaving.server_id}{at} does not lead): first out of the brokers' "
        "zookeeper.connect, then, with reconfigEnabled=true, out of the ensemble:",
        MendingCommand(
            "zookeeper-shell", (ensemble.connect[0], "reconfig", "-remove", str(leaving.server_id)), connects=False
        ),
    )


def _readiness(ensemble: EnsemblePart, member: MemberLine) -> int:
    """How well an ensemble does without a member: 2 where it is away, 0 where it leads."""
    for each in ensemble.servers:
        if each.address == member.client_address:
            return 2 if each.is_serving is False else int(each.mode != "leader")
    return 1


@rule("short-connect-string", Danger.COMING, "zookeeper.connect of brokers lacks members of the ensemble")
def connect_string_is_short(ensemble: EnsemblePart, configs: BrokerConfigsPart | Absent) -> Iterator[Finding]:
    """A broker whose only named member is away cannot start, and loses its session."""
    if isinstance(ensemble.members, Absent):
        raise UncheckedError(ensemble.members)
    voters = [each for each in ensemble.members if each.is_voter]
    if len(voters) > 1 and len(ensemble.connect) == 1:
        short = _with_one_server(configs)
        who = brokers_named(short, "Broker") if short else "Brokers"
        one = len(short) == 1
        yield Finding(
            tuple(f"broker {each}" for each in short) or ensemble.connect,
            f"{who} {'knows' if one else 'know'} one of {len(voters)} coordination servers: when it is away, "
            f"{'it loses its session' if one else 'they lose their sessions'}, though the ensemble works.",
            (f"zookeeper.connect={','.join(ensemble.connect)}; /zookeeper/config has {len(voters)} voters",),
            (
                f"name all members in zookeeper.connect of {brokers_named(short) if short else 'each broker'}, and "
                f"restart {'it' if one else 'the brokers one after the other'}",
            ),
        )


def _with_one_server(configs: BrokerConfigsPart | Absent) -> list[int]:
    """The brokers whose zookeeper.connect names one server, as far as it is known."""
    entries = {} if isinstance(configs, Absent) else configs.entries
    return sorted(
        broker_id
        for broker_id, each in entries.items()
        if (entry := each.get("zookeeper.connect")) is not None and entry.value and "," not in entry.value
    )


@rule("registration-without-session", Danger.UNAVAILABLE, "a broker's znode would stay when the broker dies")
def registrations_without_session(
    znodes: ZnodesPart, ensemble: EnsemblePart, sessions: ServerSessionsPart | Absent
) -> Iterator[Finding]:
    """A broker's znode is ephemeral: it goes with the broker's session. One that somebody made by
    hand, or whose session does not exist, keeps a dead broker in the cluster."""
    found = {}
    for each in znodes.registrations:
        path, session_id = f"/brokers/ids/{each.broker_id}", each.session_id & (1 << 64) - 1
        if not session_id:
            found[each.broker_id] = f"{path} is not ephemeral"
        elif not isinstance(sessions, Absent) and session_id not in sessions.sessions:
            found[each.broker_id] = f"{path} belongs to session 0x{session_id:x}, which does not exist (dump)"
    if found:
        first = next(iter(found))
        yield Finding(
            tuple(f"broker {each}" for each in found),
            f"The registration of {brokers_named(list(found))} has no session: it stays when the broker is dead, and the "
            "broker cannot register again.",
            tuple(found.values()),
            (
                "stop the broker, remove the znode, and start the broker again:",
                MendingCommand(
                    "zookeeper-shell", (ensemble.connect[0], "delete", f"/brokers/ids/{first}"), connects=False
                ),
            ),
        )


def _status(ensemble: EnsemblePart) -> MendingCommand:
    return MendingCommand("zookeeper-status", (",".join(ensemble.connect),), connects=False)

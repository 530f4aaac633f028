"""The commands of the admin server: from a path to an answer, without I/O.

In ZooKeeper: Commands, CommandBase and CommandResponse.
"""

import html
import json
from collections.abc import Callable, Mapping

from barnabas.base.settings import Kind, Values
from barnabas.base.tasks import Task
from barnabas.coordination.quorum.members import ANY_ADDRESS, HostAndPort, QuorumServer
from barnabas.coordination.server.view import VERSION_TEXT, ServerView
from barnabas.net.http import HttpResponse
from barnabas.wire.jute.quorum import epoch_of

__all__ = [
    "ADMIN_COMMANDS",
    "CHANGING_COMMANDS",
    "NOT_SERVING",
    "STATE_COMMANDS",
    "answer_command",
    "json_response",
    "method_of",
]

Fields = dict[str, object]
_Command = Callable[[ServerView, Mapping[str, str]], Fields | Task[Fields]]
"""``command(view, parameters of the URL)``; a field ``error`` is a failure."""

_INT_NAMES = {
    "clientPort": "client_port", "secureClientPort": "secure_client_port", "dataDir": "data_dir",
    "dataLogDir": "data_log_dir", "tickTime": "tick_time", "maxClientCnxns": "max_client_cnxns",
    "minSessionTimeout": "min_session_timeout", "maxSessionTimeout": "max_session_timeout", "serverId": "server_id",
    "clientPortListenBacklog": "client_port_listen_backlog",
}  # fmt: skip


def _configuration(view: ServerView, _: Mapping[str, str]) -> Fields:
    found = view.configuration()
    if found["secureClientPort"] == -1:
        del found["secureClientPort"]
    return {json_name: found[name] for name, json_name in _INT_NAMES.items() if name in found}


def _initial_configuration(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"initial_configuration": "".join(f"{name}={text}\n" for name, text in _shown(view.settings).items())}


def _system_properties(view: ServerView, _: Mapping[str, str]) -> Fields:
    given = {f"zookeeper.{name}": text for name, text in _shown(view.settings).items()}
    return {**view.state.environment(), **given}


def _shown(settings: Values) -> dict[str, str]:
    """The settings as they were given, without secrets: all settings that are not known
    to be harmless are hidden."""
    shown = {}
    for name, text in settings.texts.items():
        is_known = name in settings.definitions and settings.definitions[name].kind is not Kind.PASSWORD
        is_member = name.partition(".")[0] in ("server", "group", "weight", "authProvider")
        shown[name] = text if is_known or is_member else "[hidden]"
    return shown


def _connections(view: ServerView, _: Mapping[str, str]) -> Task[Fields]:
    return _connection_lists(view, full=True)


def _connection_lists(view: ServerView, *, full: bool) -> Task[Fields]:
    established = view.established()
    return {
        "connections": (
            yield from view.connection_list([each for each in established if not each.is_secure], full=full)
        ),
        "secure_connections": (
            yield from view.connection_list([each for each in established if each.is_secure], full=full)
        ),
    }


def _connection_stat_reset(view: ServerView, _: Mapping[str, str]) -> Fields:
    view.reset_connections()
    return {}


def _dirs(view: ServerView, _: Mapping[str, str]) -> Fields:
    snapshot_bytes, log_bytes = view.state.sizes()
    return {"datadir_size": snapshot_bytes, "logdir_size": log_bytes}


def _dump(view: ServerView, _: Mapping[str, str]) -> Task[Fields]:
    return {
        "expiry_time_to_session_ids": (yield from view.expiring_sessions()),
        "session_id_to_ephemeral_paths": (yield from view.ephemerals()),
    }


def _environment(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"zookeeper.version": VERSION_TEXT, **view.state.environment()}


def _get_trace_mask(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"tracemask": view.processor.statistics.trace_mask}


def _set_trace_mask(view: ServerView, parameters: Mapping[str, str]) -> Fields:
    given = parameters.get("traceMask")
    if given is None:
        return {"error": "setTraceMask requires long traceMask argument"}
    try:
        view.processor.statistics.trace_mask = int(given)
    except ValueError:
        return {"error": f"setTraceMask requires long traceMask argument, got {given[:100]}"}
    return _get_trace_mask(view, parameters)


def _hash(view: ServerView, _: Mapping[str, str]) -> Fields:
    log = view.processor.database.digest_log
    return {"digests": [{"zxid": zxid, "digest": digest, "digest_version": 2} for zxid, digest in log]}


def _is_read_only(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"read_only": view.state.mode == "read-only"}


def _last_snapshot(view: ServerView, _: Mapping[str, str]) -> Fields:
    zxid, timestamp_s = view.state.last_snapshot
    return {"zxid": f"{zxid:x}" if zxid >= 0 else "-1", "timestamp": timestamp_s}


def _leader(view: ServerView, _: Mapping[str, str]) -> Fields:
    quorum = view.state.quorum
    if quorum is None:
        return {"error": "server is not initialized"}
    leader = quorum.configuration.servers.get(quorum.leader_id)
    return {
        "is_leader": quorum.is_leader,
        "leader_id": quorum.leader_id,
        "leader_ip": leader.host if leader is not None else "",
    }


def _observers(view: ServerView, _: Mapping[str, str]) -> Fields:
    observers = view.observers()
    return {"synced_observers": len(observers), "observers": observers}


def _observer_connection_stat_reset(view: ServerView, _: Mapping[str, str]) -> Fields:
    view.reset_observers()
    return {}


def _client_address(view: ServerView) -> str:
    quorum, state = view.state.quorum, view.state
    me = quorum.configuration.servers.get(quorum.my_id) if quorum is not None else None
    host = me.client.host if me is not None and me.client is not None else view.settings["clientPortAddress"]
    return f"{host or ANY_ADDRESS}:{state.client_port}"


def _voting_view(view: ServerView, _: Mapping[str, str]) -> Fields:
    quorum = view.state.quorum
    members = quorum.configuration.servers.values() if quorum is not None else ()
    return {"current_config": {each.id: _member(view, each) for each in members if each.is_participant}}


def _member(view: ServerView, server: QuorumServer) -> Fields:
    quorum = view.state.quorum
    is_this = quorum is not None and server.id == quorum.my_id
    client = "" if server.client is None else str(server.client)
    return {
        "server_addresses": [str(server.quorum_address)],
        "election_addresses": [str(server.election_address)],
        "client_address": _client_address(view) if is_this else client,
        "learner_type": server.role.value,
    }


def _address(address: HostAndPort) -> Fields:
    """One address, under each name that MultipleAddresses serializes."""
    text = str(address)
    wildcard = str(HostAndPort(ANY_ADDRESS, address.port))
    return {
        "empty": False,
        "all_addresses": [text],
        "wildcard_addresses": [wildcard],
        "all_ports": [address.port],
        "all_host_strings": [address.host],
        "reachable_address": text,
        "all_reachable_addresses": [text],
        "all_reachable_addresses_or_all": [text],
        "reachable_or_one": text,
        "one": text,
    }


def _zabstate(view: ServerView, _: Mapping[str, str]) -> Fields:
    quorum = view.state.quorum
    me = quorum.configuration.servers.get(quorum.my_id) if quorum is not None else None
    if quorum is None or me is None or not view.state.is_serving:
        return {"voting": False, "zabstate": ""}
    zxid = view.processor.database.last_zxid
    return {
        "myid": quorum.my_id,
        "is_leader": quorum.is_leader,
        "quorum_address": _address(me.quorum_address),
        "election_address": _address(me.election_address),
        "client_address": _client_address(view),
        "voting": quorum.my_id in quorum.configuration.voters,
        "last_zxid": f"0x{zxid:x}",
        "zab_epoch": epoch_of(zxid),
        "zab_counter": zxid & 0xFFFFFFFF,
        "zabstate": quorum.phase,
    }


def _monitor(view: ServerView, _: Mapping[str, str]) -> Fields:
    return view.monitor()


def _ruok(_view: ServerView, _: Mapping[str, str]) -> Fields:
    return {}


def _server_stats(view: ServerView, _: Mapping[str, str]) -> Fields:
    snapshot_bytes, log_bytes = view.state.sizes()
    gauges = view.gauges()
    statistics = view.processor.statistics
    sizes = {
        "last_buffer_size": statistics.last_reply_bytes,
        "min_buffer_size": statistics.min_reply_bytes,
        "max_buffer_size": statistics.max_reply_bytes,
    }
    same = "packets_sent packets_received uptime outstanding_requests avg_latency max_latency min_latency auth_failed_count"
    return {
        "version": VERSION_TEXT,
        "read_only": view.state.mode == "read-only",
        "server_stats": {
            **{name: gauges[name] for name in same.split()},
            "client_response_stats": sizes,
            "data_dir_size": snapshot_bytes,
            "log_dir_size": log_bytes,
            "last_processed_zxid": view.processor.database.last_zxid,
            "server_state": view.state.mode,
            "num_alive_client_connections": gauges["num_alive_connections"],
            "provider_null": False,
            "fsync_threshold_exceed_count": view.counters().get("fsync_threshold_exceed_count", 0),
            "non_mtlsremote_conn_count": gauges["non_mtls_remote_conn_count"],
            "non_mtlslocal_conn_count": gauges["non_mtls_local_conn_count"],
        },
        "client_response": sizes,
        **_proposal_stats(view),
        "node_count": view.node_count,
    }


def _proposal_stats(view: ServerView) -> Fields:
    member = view.state.member
    if view.state.mode != "leader":
        return {}
    return {
        "proposal_stats": {f"{name}_buffer_size": member[f"{name}_proposal_size"] for name in ("last", "min", "max")}
    }


def _stats(view: ServerView, parameters: Mapping[str, str]) -> Task[Fields]:
    return {**_server_stats(view, parameters), **(yield from _connection_lists(view, full=False))}


def _stat_reset(view: ServerView, _: Mapping[str, str]) -> Fields:
    view.reset_statistics()
    return {}


def _watches(view: ServerView, _: Mapping[str, str]) -> Task[Fields]:
    return {"session_id_to_watched_paths": (yield from view.watched_paths())}


def _watches_by_path(view: ServerView, _: Mapping[str, str]) -> Task[Fields]:
    return {"path_to_session_ids": (yield from view.watchers())}


def _watch_summary(view: ServerView, _: Mapping[str, str]) -> Fields:
    connections, paths, total = view.processor.watches.counts()
    return {"num_connections": connections, "num_paths": paths, "num_total_watches": total}


ADMIN_COMMANDS: dict[str, tuple[_Command, str]] = {
    "configuration": (_configuration, "conf config"),
    "connection_stat_reset": (_connection_stat_reset, "crst"),
    "connections": (_connections, "cons"),
    "dirs": (_dirs, ""),
    "dump": (_dump, ""),
    "environment": (_environment, "env envi"),
    "get_trace_mask": (_get_trace_mask, "gtmk"),
    "hash": (_hash, ""),
    "initial_configuration": (_initial_configuration, "icfg"),
    "is_read_only": (_is_read_only, "isro"),
    "last_snapshot": (_last_snapshot, "lsnp"),
    "leader": (_leader, "lead"),
    "monitor": (_monitor, "mntr"),
    "observer_connection_stat_reset": (_observer_connection_stat_reset, "orst"),
    "observers": (_observers, "obsr"),
    "ruok": (_ruok, ""),
    "server_stats": (_server_stats, "srvr"),
    "set_trace_mask": (_set_trace_mask, "stmk"),
    "stat_reset": (_stat_reset, "srst"),
    "stats": (_stats, "stat"),
    "system_properties": (_system_properties, "sysp"),
    "voting_view": (_voting_view, ""),
    "watch_summary": (_watch_summary, "wchs"),
    "watches": (_watches, "wchc"),
    "watches_by_path": (_watches_by_path, "wchp"),
    "zabstate": (_zabstate, ""),
}
"""Commands with the other names that they have. Those that take or replace the state
are in `state_commands`."""

CHANGING_COMMANDS = frozenset(
    ("connection_stat_reset", "observer_connection_stat_reset", "set_trace_mask", "stat_reset")
)
"""Those that change the server, which a GET must not do: a link, or a picture on a page, makes a
browser send it. ZooKeeper has them as GET requests."""

_JSON = json.JSONEncoder(indent=2, separators=(",", " : "), default=str)
_PARTS_A_STEP = 1000
"""They take half a millisecond."""

STATE_COMMANDS = {"snapshot": ("GET", "snap"), "restore": ("POST", "rest")}
"""The commands that stream the state, with their method and their other name."""

NOT_SERVING = "This ZooKeeper instance is not currently serving requests"
_WITHOUT_SERVICE = (
    "environment",
    "get_trace_mask",
    "set_trace_mask",
    "system_properties",
    "zabstate",
)

_BY_NAME = {
    name: (primary, command)
    for primary, (command, others) in ADMIN_COMMANDS.items()
    for name in (primary, *others.split())
}


def method_of(name: str) -> str:
    """The method of a command, by any of its names."""
    found = _BY_NAME.get(name)
    return "POST" if found is not None and found[0] in CHANGING_COMMANDS else "GET"


def answer_command(view: ServerView, name: str, parameters: Mapping[str, str], root: str) -> Task[HttpResponse]:
    """The answer to a command, made in slices because some answers are large.

    Without a name it is the list of all commands, with links below ``root``."""
    if not name:
        names = sorted([*ADMIN_COMMANDS, *STATE_COMMANDS])
        links = (f'<a href="{html.escape(root)}/{command}">{command}</a>\n<br/>\n' for command in names)
        return HttpResponse(200, "text/html", "".join(links).encode())
    found = _BY_NAME.get(name)
    if found is None:
        return json_response(name[:100], f"Unknown command: {name[:100]}")
    primary, command = found
    if not view.state.is_serving and primary not in _WITHOUT_SERVICE:
        return json_response(primary, NOT_SERVING)
    found_fields = command(view, parameters)
    fields = found_fields if isinstance(found_fields, dict) else (yield from found_fields)
    error = fields.pop("error", None)
    parts = []
    for part in _JSON.iterencode({**fields, "command": primary, "error": error}):
        parts.append(part)
        if not len(parts) % _PARTS_A_STEP:
            yield None
    return HttpResponse(200, "application/json", "".join(parts).encode())


def json_response(
    command: str, error: object = None, fields: Mapping[str, object] | None = None, *, status: int = 200
) -> HttpResponse:
    """The answer of a command. The status is 200 for most failures too, as in ZooKeeper."""
    text = _JSON.encode({**(fields or {}), "command": command, "error": error})
    return HttpResponse(status, "application/json", text.encode())

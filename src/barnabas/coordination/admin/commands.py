"""The commands of the admin server, and the metrics page: from a path to an answer, without I/O.

In ZooKeeper: Commands, CommandBase and CommandResponse; PrometheusMetricsProvider for `metrics_page`.
"""

import html
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.base.settings import Kind, Values
from barnabas.coordination.core.request_metrics import Distribution
from barnabas.coordination.server.metric_names import COUNTER_NAMES
from barnabas.coordination.server.view import VERSION_TEXT, ServerView

__all__ = ["ADMIN_COMMANDS", "AdminResponse", "answer_command", "metrics_page"]

Fields = dict[str, object]
_Command = Callable[[ServerView, Mapping[str, str]], Fields]
"""``command(view, parameters of the URL)``; a field ``error`` is a failure."""

_INT_NAMES = {
    "clientPort": "client_port", "secureClientPort": "secure_client_port", "dataDir": "data_dir",
    "dataLogDir": "data_log_dir", "tickTime": "tick_time", "maxClientCnxns": "max_client_cnxns",
    "minSessionTimeout": "min_session_timeout", "maxSessionTimeout": "max_session_timeout", "serverId": "server_id",
    "clientPortListenBacklog": "client_port_listen_backlog", "initLimit": "init_limit", "syncLimit": "sync_limit",
    "electionAlg": "election_alg",
}  # fmt: skip


class AdminResponse(NamedTuple):
    """What goes over HTTP."""

    status: int
    content_type: str
    body: bytes


def _configuration(view: ServerView, _: Mapping[str, str]) -> Fields:
    found = view.configuration()
    return {json_name: found[name] for name, json_name in _INT_NAMES.items() if name in found}


def _initial_configuration(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"initial_configuration": "".join(f"{name}={text}\n" for name, text in _shown(view.settings).items())}


def _system_properties(view: ServerView, _: Mapping[str, str]) -> Fields:
    given = {f"zookeeper.{name}": text for name, text in _shown(view.settings).items()}
    return {**view.state.environment(), **given}


def _shown(settings: Values) -> dict[str, str]:
    """The settings as they were given, without secrets: what is not known to be harmless is hidden."""
    shown = {}
    for name, text in settings.texts.items():
        is_known = name in settings.definitions and settings.definitions[name].kind is not Kind.PASSWORD
        is_member = name.partition(".")[0] in ("server", "group", "weight", "authProvider")
        shown[name] = text if is_known or is_member else "[hidden]"
    return shown


def _connections(view: ServerView, _: Mapping[str, str]) -> Fields:
    return _connection_lists(view, full=True)


def _connection_lists(view: ServerView, *, full: bool) -> Fields:
    established = view.established()
    return {
        "connections": [view.connection(each, full=full) for each in established if not each.is_secure],
        "secure_connections": [view.connection(each, full=full) for each in established if each.is_secure],
    }


def _connection_stat_reset(view: ServerView, _: Mapping[str, str]) -> Fields:
    view.reset_connections()
    return {}


def _dirs(view: ServerView, _: Mapping[str, str]) -> Fields:
    snapshot_bytes, log_bytes = view.state.sizes()
    return {"datadir_size": snapshot_bytes, "logdir_size": log_bytes}


def _dump(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {
        "expiry_time_to_session_ids": view.expiring_sessions(),
        "session_id_to_ephemeral_paths": view.ephemerals(),
    }


def _environment(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"zookeeper.version": VERSION_TEXT, **view.state.environment()}


def _get_trace_mask(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"tracemask": view.processor.statistics.trace_mask}


def _set_trace_mask(view: ServerView, parameters: Mapping[str, str]) -> Fields:
    try:
        view.processor.statistics.trace_mask = int(parameters["traceMask"])
    except (KeyError, ValueError):
        return {"error": "setTraceMask requires long traceMask argument"}
    return _get_trace_mask(view, parameters)


def _hash(view: ServerView, _: Mapping[str, str]) -> Fields:
    log = view.processor.database.digest_log
    return {"digests": [{"zxid": zxid, "digest": digest, "digest_version": 2} for zxid, digest in log]}


def _is_read_only(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"read_only": view.state.mode == "read-only"}


def _last_snapshot(view: ServerView, _: Mapping[str, str]) -> Fields:
    zxid, timestamp_s = view.state.last_snapshot
    return {"zxid": f"{zxid:x}" if zxid >= 0 else "-1", "timestamp": timestamp_s}


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
        "read_only": False,
        "server_stats": {
            **{name: gauges[name] for name in same.split()},
            "client_response_stats": sizes,
            "data_dir_size": snapshot_bytes,
            "log_dir_size": log_bytes,
            "last_processed_zxid": view.processor.database.last_zxid,
            "server_state": view.state.mode,
            "num_alive_client_connections": gauges["num_alive_connections"],
            "provider_null": False,
        },
        "client_response": sizes,
        "node_count": view.node_count,
    }


def _stats(view: ServerView, parameters: Mapping[str, str]) -> Fields:
    return {**_server_stats(view, parameters), **_connection_lists(view, full=False)}


def _stat_reset(view: ServerView, _: Mapping[str, str]) -> Fields:
    view.reset_statistics()
    return {}


def _watches(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"session_id_to_watched_paths": view.watched_paths()}


def _watches_by_path(view: ServerView, _: Mapping[str, str]) -> Fields:
    return {"path_to_session_ids": view.watchers()}


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
    "monitor": (_monitor, "mntr"),
    "ruok": (_ruok, ""),
    "server_stats": (_server_stats, "srvr"),
    "set_trace_mask": (_set_trace_mask, "stmk"),
    "stat_reset": (_stat_reset, "srst"),
    "stats": (_stats, "stat"),
    "system_properties": (_system_properties, "sysp"),
    "watch_summary": (_watch_summary, "wchs"),
    "watches": (_watches, "wchc"),
    "watches_by_path": (_watches_by_path, "wchp"),
}
"""Commands with the other names that they have. Those of the ensemble, and snapshot and restore, are not offered."""

_QUANTILES = (0.5, 0.9, 0.99)
_WITHOUT_SERVICE = (
    "environment",
    "get_trace_mask",
    "set_trace_mask",
    "initial_configuration",
    "ruok",
    "system_properties",
)

_BY_NAME = {
    name: (primary, command)
    for primary, (command, others) in ADMIN_COMMANDS.items()
    for name in (primary, *others.split())
}


def answer_command(view: ServerView, name: str, parameters: Mapping[str, str], root: str) -> AdminResponse:
    """The answer to a command; to the empty name the list of all of them, with links below ``root``."""
    if not name:
        links = (f'<a href="{html.escape(root)}/{command}">{command}</a>\n<br/>\n' for command in ADMIN_COMMANDS)
        return AdminResponse(200, "text/html", "".join(links).encode())
    found = _BY_NAME.get(name)
    if found is None:
        return _as_json({"command": name[:100], "error": f"Unknown command: {name[:100]}"})
    primary, command = found
    if not view.state.is_serving and primary not in _WITHOUT_SERVICE:
        return _as_json({"command": primary, "error": "This ZooKeeper instance is not currently serving requests"})
    fields = command(view, parameters)
    error = fields.pop("error", None)
    return _as_json({**fields, "command": primary, "error": error})


def _as_json(fields: Fields) -> AdminResponse:
    """The status is 200 for a failure too, as in ZooKeeper."""
    text = json.dumps(fields, indent=2, separators=(",", " : "), default=str)
    return AdminResponse(200, "application/json", text.encode())


def metrics_page(view: ServerView) -> AdminResponse:
    """All figures in the text format of Prometheus."""
    lines: list[str] = []

    def add(name: str, kind: str, samples: Mapping[str, float]) -> None:
        lines.extend((f"# HELP {name} {name}", f"# TYPE {name} {kind}"))
        lines.extend(f"{name}{suffix} {float(value)}" for suffix, value in samples.items())

    member = {name: value for name, value in view.state.member.items() if isinstance(value, int)}
    for name, value in {**view.gauges(), **member, **view.state.process()}.items():
        add(name, "counter" if name.endswith("_total") else "gauge", {"": value})
    for name, value in {**dict.fromkeys(COUNTER_NAMES, 0), **view.counters()}.items():
        add(name, "counter", {"": value})
    for name, summary in view.summaries().items():
        samples: dict[str, float] = {"_count": summary.count, "_sum": summary.total}
        if isinstance(summary, Distribution):
            samples.update({f'{{quantile="{part}"}}': summary.percentile(part) for part in _QUANTILES})
        add(name, "summary", samples)
    for name, by_namespace in view.processor.metrics.by_namespace().items():
        samples = {}
        for namespace, each in by_namespace.items():
            key = json.dumps(namespace, ensure_ascii=False)
            samples.update({f"_count{{key={key}}}": each.count, f"_sum{{key={key}}}": each.total})
        add(name, "summary", samples)
    return AdminResponse(200, "text/plain; version=0.0.4; charset=utf-8", "\n".join([*lines, ""]).encode())

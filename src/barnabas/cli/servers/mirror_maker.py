"""``barnabas mirror-maker``: copy topics from one cluster to another, continuously.

The options are those of Kafka's MirrorMaker, with dots in their names as it has them; the
properties files may use the names of Kafka's first clients. A consumer.properties that names only
``zookeeper.connect`` finds the brokers there.
"""

import argparse
import logging
import re
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType

from barnabas.base.errors import ConfigError
from barnabas.cli.connection.properties import client_properties_file
from barnabas.cli.connection.reachability import require_broker
from barnabas.cli.options.tool_parser import ToolParser, add_connect_timeout
from barnabas.cli.output.exit_codes import INTERRUPTED
from barnabas.cli.output.log_lines import log_to_standard_error
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.output.terminal import print
from barnabas.mirror.maker import MirrorMaker
from barnabas.mirror.replication_policy import ReplicationPolicy
from barnabas.mirror.settings import LinkSettings, MirrorSettings, TopicFilter, bootstrap_servers
from barnabas.net.metrics_address import METRICS_ADDRESS, parse_metrics_address

__all__ = ["main"]

_REFUSED = {
    "message.handler": "handlers are Java classes; use a pipeline to change records on their way",
    "message.handler.args": "handlers are Java classes; use a pipeline to change records on their way",
    "consumer.rebalance.listener": "listeners are Java classes; offsets are flushed and committed before a rebalance",
    "rebalance.listener.args": "listeners are Java classes; offsets are flushed and committed before a rebalance",
}

_POLICIES = {"DefaultReplicationPolicy": True, "IdentityReplicationPolicy": False}
_OF_LINKS = (
    "replication.policy.class",
    "sync.topic.configs.enabled",
    "sync.group.offsets.enabled",
    "groups",
    "emit.checkpoints.interval.seconds",
    "emit.heartbeats.interval.seconds",
    "offset.lag.max",
)


def main(argv: list[str]) -> int:
    """Run until SIGINT (130) or SIGTERM (0), or until a record cannot be delivered (1)."""
    parser = _parser()
    given = parser.parse_args(argv)
    outlive_output()
    for option, reason in _REFUSED.items():
        if parser.has(given, option):
            parser.error(f"--{option} is not supported: {reason}")
    include = given.include or given.whitelist
    if not include:
        parser.error("one of --include and --whitelist is needed: a regular expression of the topics to mirror")
    log_to_standard_error(logging.INFO, "%(asctime)s %(levelname)s %(message)s")
    settings = MirrorSettings(
        consumer=client_properties_file(given.consumer_config),
        producer=client_properties_file(given.producer_config),
        topics=TopicFilter(include, given.exclude or given.blacklist),
        streams=given.num_streams,
        abort_on_send_failure=_boolean(given.abort_on_send_failure, "abort.on.send.failure"),
        commit_interval_ms=given.offset_commit_interval_ms,
        topic_refresh_ms=given.topic_refresh_ms,
        link=_link(given, parser),
        metrics_http_address=None
        if given.metrics_http_address is None
        else parse_metrics_address(given.metrics_http_address),
    )
    maker = MirrorMaker(settings)
    for properties in (settings.consumer, settings.producer):
        _require_cluster(properties, given.connect_timeout)
    return _run(maker)


def _require_cluster(properties: Mapping[str, str], timeout_s: float) -> None:
    """Raise `ConnectError` unless a broker answers.

    Brokers that are found in ZooKeeper are left to the mirror."""
    if servers := bootstrap_servers(properties):
        require_broker(servers, properties, timeout_s)


def _link(given: argparse.Namespace, parser: ToolParser) -> LinkSettings | None:
    """The link that the options ask for; raises `ConfigError`."""
    if not given.source_cluster_alias and not given.target_cluster_alias:
        for option in _OF_LINKS:
            if parser.has(given, option):
                parser.error(f"--{option} needs --source.cluster.alias and --target.cluster.alias")
        return None
    name = (given.replication_policy_class or "DefaultReplicationPolicy").rpartition(".")[2]
    if name not in _POLICIES:
        raise ConfigError(f"--replication.policy.class {name}: one of {', '.join(_POLICIES)} is expected")
    try:
        groups = re.compile((given.groups or ".*").replace(",", "|"))
    except re.error as error:
        raise ConfigError(f"--groups {given.groups}: this is not a regular expression ({error})") from error
    return LinkSettings(
        ReplicationPolicy(given.source_cluster_alias or "", given.target_cluster_alias or "", _POLICIES[name]),
        sync_topic_configs=_boolean(given.sync_topic_configs_enabled or "false", "sync.topic.configs.enabled"),
        sync_group_offsets=_boolean(given.sync_group_offsets_enabled or "false", "sync.group.offsets.enabled"),
        groups=groups,
        heartbeat_interval_ms=1000 * (given.emit_heartbeats_interval_seconds or 1),
        checkpoint_interval_ms=1000 * (given.emit_checkpoints_interval_seconds or 60),
        offset_lag_max=given.offset_lag_max or 100,
    )


def _run(maker: MirrorMaker) -> int:
    code = 0

    def stopper(exit_code: int) -> Callable[[int, FrameType | None], None]:
        def stop(_: int, __: FrameType | None) -> None:
            nonlocal code
            code = exit_code
            maker.stop()

        return stop

    signal.signal(signal.SIGINT, stopper(INTERRUPTED))
    signal.signal(signal.SIGTERM, stopper(0))
    maker.start()
    try:
        maker.wait()
    finally:
        dropped = f", {maker.dropped} were not delivered" if maker.dropped else ""
        print(f"Mirrored a total of {maker.copied} messages{dropped}", file=sys.stderr)
    return code


def _boolean(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"--{option} {text}: true or false is expected")
    return text.lower() == "true"


def _parser() -> ToolParser:
    parser = ToolParser("mirror-maker", "Copy topics from one cluster to another, continuously.")

    def add(name: str, **options: object) -> None:
        parser.add_argument(f"--{name}", dest=name.replace(".", "_"), **options)  # type: ignore[arg-type]  # argparse's

    add("consumer.config", required=True, metavar="FILE", help="properties of the consumers of the source cluster")
    add("producer.config", required=True, metavar="FILE", help="properties of the producers to the target cluster")
    add("include", metavar="REGEX", help="topics to mirror: their whole name matches; a comma means 'or'")
    add("whitelist", metavar="REGEX", help="the old name of --include")
    add("exclude", metavar="REGEX", help="topics not to mirror, of those included")
    add("blacklist", metavar="REGEX", help="the old name of --exclude")
    add("num.streams", type=_positive, default=1, metavar="N", help="consumers, each with a producer (default 1)")
    add("abort.on.send.failure", default="true", metavar="BOOLEAN", help="stop when a record cannot be delivered")
    add(
        "offset.commit.interval.ms",
        type=_positive,
        default=60_000,
        metavar="MS",
        help="how often to flush and commit (default 60000)",
    )
    add(
        "topic.refresh.ms",
        type=_positive,
        default=5_000,
        metavar="MS",
        help="how often to look for new topics (default 5000)",
    )
    add(METRICS_ADDRESS, metavar="HOST:PORT", help="where Prometheus finds the metrics, over HTTP (default nowhere)")
    _add_link_options(add)
    add("new.consumer", action="store_true", help="the only consumer there is; for command lines of older tutorials")
    add_connect_timeout(parser, waits=True)
    for option in _REFUSED:
        add(option, help=argparse.SUPPRESS)
    return parser


def _add_link_options(add: Callable[..., None]) -> None:
    add("source.cluster.alias", metavar="NAME", help="the source's name: the mirror then translates offsets of groups")
    add("target.cluster.alias", metavar="NAME", help="the target's name")
    add(
        "replication.policy.class",
        metavar="CLASS",
        help="with aliases: DefaultReplicationPolicy puts the source's name before topics (default); "
        "IdentityReplicationPolicy leaves them",
    )
    add(
        "sync.topic.configs.enabled",
        metavar="BOOLEAN",
        help="with aliases: topic configurations follow the source's (default false)",
    )
    add(
        "sync.group.offsets.enabled",
        metavar="BOOLEAN",
        help="with aliases: translated offsets are committed at the target for groups without members there (default false)",
    )
    add("groups", metavar="REGEX", help="with aliases: groups whose offsets are translated (default .*)")
    add(
        "emit.checkpoints.interval.seconds",
        type=_positive,
        metavar="S",
        help="with aliases: how often (default 60)",
    )
    add(
        "emit.heartbeats.interval.seconds",
        type=_positive,
        metavar="S",
        help="with aliases: how often (default 1)",
    )
    add(
        "offset.lag.max",
        type=_positive,
        metavar="N",
        help="with aliases: at most N records between two pairs of offsets (default 100)",
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number

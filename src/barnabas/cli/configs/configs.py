"""``barnabas configs``: describe and alter configurations, with the options of
Kafka's ConfigCommand."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.cli.configs.changes import Entity, parse_changes
from barnabas.cli.configs.quotas import run_quotas
from barnabas.cli.configs.scram_users import alter_users, describe_users, names_scram
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.connection.suggestions import warn_of_unknown, with_suggestion
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.admin.configurations import (
    ConfigEntry,
    ConfigSource,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection, ConnectError
from barnabas.client.cluster.each_broker import ask_each, reached
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from barnabas.wire.kafka.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

__all__ = ["main"]


class _EntityKind(NamedTuple):
    """A kind of entity: its resource type and the source of its dynamic values."""

    type: ResourceType
    source: ConfigSource | None


_KINDS = {
    "topics": _EntityKind(ResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    "brokers": _EntityKind(ResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    "broker-loggers": _EntityKind(ResourceType.BROKER_LOGGER, None),
    "client-metrics": _EntityKind(ResourceType.CLIENT_METRICS, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
    "groups": _EntityKind(ResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
}
_QUOTAS = ("users", "clients", "ips")
_FLAGS = {
    "topic": "topics",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "client-metrics": "client-metrics",
    "group": "groups",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}
_DEFAULTS = {"broker-defaults": "brokers", "user-defaults": "users", "client-defaults": "clients", "ip-defaults": "ips"}
_DEFAULT_ENTITY = ""


def main(argv: list[str]) -> int:
    """``--describe`` or ``--alter`` one entity, or describe all of a kind."""
    parser = _parser()
    given = parser.parse_args(argv)
    _check(parser, given)
    entities = _entities(parser, given)
    if given.zookeeper is not None:
        return _alter_in_zookeeper(parser, given, entities)
    with connect(given, "barnabas-configs") as connection:
        try:
            if entities[0].kind == "users" and len(entities) == 1:
                return _run_user(connection, given, entities[0])
            if entities[0].kind in _QUOTAS:
                return run_quotas(connection, given, entities)
            if given.alter:
                _alter(connection, given, entities[0])
            else:
                return _describe(connection, given, entities[0])
        except KafkaError as error:
            topic = entities[0].name if entities[0].kind == "topics" else None
            raise with_suggestion(error, connection, topic) from error
    return 0


def _check(parser: ToolParser, given: argparse.Namespace) -> None:
    if given.alter == given.describe:
        parser.error("Command must include exactly one action: --describe, --alter")
    if given.zookeeper is None:
        parser.require(given, "bootstrap-server")
        if given.zk_tls_config_file:
            parser.error("The --zk-tls-config-file option can only be used with --zookeeper")
    for option in ("add-config", "add-config-file", "delete-config"):
        if given.describe and parser.has(given, option):
            parser.error(f'Option "[describe]" can\'t be used with option "[{option}]"')
    if given.add_config and given.add_config_file:
        parser.error("Only one of --add-config or --add-config-file must be specified for --alter")
    if given.alter and not (given.add_config or given.add_config_file or given.delete_config):
        parser.error(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


def _alter_in_zookeeper(parser: ToolParser, given: argparse.Namespace, entities: list[Entity]) -> int:
    """The one use of ``--zookeeper`` that Kafka's tool has left: users that must
    exist before a broker starts."""
    changes = parse_changes(given.add_config, given.add_config_file, given.delete_config) if given.alter else {}
    user = entities[0].name or ""
    if [entity.kind for entity in entities] != ["users"] or not user or not names_scram(changes):
        parser.error(
            "--zookeeper is for SCRAM credentials of users alone, before a broker runs (--alter --entity-type users "
            "--entity-name NAME --add-config 'SCRAM-SHA-256=[password=...]'); for all else name a broker, "
            "--bootstrap-server HOST:PORT"
        )
    # Imports much that no other use needs.
    from barnabas.cli.configs.scram_znodes import alter_users_in_zookeeper

    alter_users_in_zookeeper(given.zookeeper, user, changes, given.zk_tls_config_file)
    return 0


def _run_user(connection: AdminConnection, given: argparse.Namespace, entity: Entity) -> int:
    """A user's SCRAM credentials or quotas. Brokers that have no quotas still have credentials."""
    if given.alter:
        changes = parse_changes(given.add_config, given.add_config_file, given.delete_config)
        if not names_scram(changes):
            return run_quotas(connection, given, [entity])
        alter_users(connection, entity.name or "", changes)
        return 0
    has_credentials = entity.name != _DEFAULT_ENTITY and connection.offers(DescribeUserScramCredentialsRequest)
    if not has_credentials or connection.offers(DescribeClientQuotasRequest):
        run_quotas(connection, given, [entity])
    if has_credentials:
        describe_users(connection, given, entity.name)
    return 0


def _entities(parser: ToolParser, given: argparse.Namespace) -> list[Entity]:
    """The entities in both of Kafka's notations; two only for users and their clients."""
    entities = [Entity(kind, name) for kind, name in _typed(given)]
    flagged = [
        Entity(kind, getattr(given, flag.replace("-", "_"))) for flag, kind in _FLAGS.items() if parser.has(given, flag)
    ]
    flagged += [Entity(kind, _DEFAULT_ENTITY) for flag, kind in _DEFAULTS.items() if parser.has(given, flag)]
    if entities and flagged:
        parser.error("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    entities = entities or flagged
    if not entities:
        parser.error("At least one entity type must be specified")
    kinds = [entity.kind for entity in entities]
    for kind in kinds:
        if kind not in _KINDS and kind not in _QUOTAS:
            known = ", ".join([*_KINDS, *_QUOTAS])
            parser.error(f"Invalid entity type {kind}, the entity type must be one of {known}")
    if len(kinds) > 1 and sorted(kinds) != ["clients", "users"]:
        parser.error("Only 'users' and 'clients' entity types may be specified together")
    if given.alter and any(entity.name is None for entity in entities):
        parser.error("an entity name must be specified with --alter: --entity-name or --entity-default")
    first = entities[0]
    if first.kind in ("brokers", "broker-loggers") and first.name and not first.name.isdecimal():
        parser.error(f"The entity name for {first.kind} must be a valid integer broker id, but it is: {first.name}")
    return entities


def _typed(given: argparse.Namespace) -> Iterator[tuple[str, str | None]]:
    """``--entity-type`` with the ``--entity-name`` or ``--entity-default`` of the same place."""
    names = given.entity_names
    for number, kind in enumerate(given.entity_type):
        yield kind, names[number] if number < len(names) else None


# Describe


def _describe(connection: AdminConnection, given: argparse.Namespace, entity: Entity) -> int:
    names = [entity.name] if entity.name is not None else _all_names(connection, entity.kind)
    resources = [Resource(_KINDS[entity.kind].type, name) for name in names]
    found = _configs(connection, resources)
    gaps = Gaps(connection)
    described: list[tuple[str, list[ConfigEntry] | None]] = []
    for resource in resources:
        entries = found.get(resource)
        if entries is not None and not given.all:
            entries = [entry for entry in entries if _is_dynamic(entry, entity.kind, resource.name)]
        described.append((resource.name, entries))
    if given.output == "json":
        print_json([_as_json(entity.kind, name, entries) for name, entries in described])
        return gaps.report()
    for name, entries in described:
        if entries is None:
            continue
        if name == _DEFAULT_ENTITY:
            print(f"Default configs for {entity.kind} in the cluster are:")
        else:
            print(f"{'All' if given.all else 'Dynamic'} configs for {entity.kind[:-1]} {name} are:")
        for entry in entries:
            synonyms = ", ".join(f"{one.source.name}:{one.name}={_value_text(one.value)}" for one in entry.synonyms)
            sensitive = str(entry.is_sensitive).lower()
            print(f"  {entry.name}={_value_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")
    return gaps.report()


def _configs(connection: AdminConnection, resources: Sequence[Resource]) -> dict[Resource, list[ConfigEntry]]:
    """What the brokers that answer say; a broker's own configuration only it knows."""
    found: dict[Resource, list[ConfigEntry]] = {}
    common = [resource for resource in resources if resource.broker_id is None]
    if common:
        found.update(describe_configs(connection, common, synonyms=True))
    own = {resource.broker_id: resource for resource in resources if resource.broker_id is not None}
    answers = ask_each(
        connection, own, lambda asking, broker_id: describe_configs(asking, [own[broker_id]], synonyms=True)
    )
    for answer in reached(answers).values():
        found.update(answer)
    return found


def _value_text(value: str | None) -> str:
    return "null" if value is None else value


def _all_names(connection: AdminConnection, kind: str) -> list[str]:
    if kind == "topics":
        return [topic.name for topic in describe_topics(connection)]
    if kind in ("brokers", "broker-loggers"):
        brokers = [str(broker.id) for broker in connection.describe_cluster().brokers]
        return [*brokers, _DEFAULT_ENTITY] if kind == "brokers" else brokers
    raise ConfigError(f"--entity-name is needed for {kind}")


def _is_dynamic(entry: ConfigEntry, kind: str, name: str) -> bool:
    if kind == "brokers" and name == _DEFAULT_ENTITY:
        return entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    source = _KINDS[kind].source
    return source is None or entry.source is source


def _as_json(kind: str, name: str, entries: list[ConfigEntry] | None) -> dict[str, Any]:
    return {
        "entity_type": kind,
        "entity_name": name or None,
        "configs": None
        if entries is None
        else [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source.name,
                "sensitive": entry.is_sensitive,
                "read_only": entry.is_read_only,
                "synonyms": [
                    {"name": one.name, "value": one.value, "source": one.source.name} for one in entry.synonyms
                ],
            }
            for entry in entries
        ],
    }


# Alter


def _alter(connection: AdminConnection, given: argparse.Namespace, entity: Entity) -> None:
    changes = parse_changes(given.add_config, given.add_config_file, given.delete_config)
    name = entity.name or _DEFAULT_ENTITY
    resource = Resource(_KINDS[entity.kind].type, name)
    deleted = [key for key, value in changes.items() if value is None]
    if deleted:
        entries = describe_configs(connection, [resource])[resource]
        there = {entry.name for entry in entries if _is_dynamic(entry, entity.kind, name)}
        missing = [key for key in deleted if key not in there]
        if missing:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid config(s): {','.join(missing)}")
    if entity.kind == "brokers":
        _warn_of_unknown(connection, changes)
    alter_configs(connection, resource, changes)
    if name == _DEFAULT_ENTITY:
        print(f"Completed updating default config for {entity.kind} in the cluster.")
    else:
        print(f"Completed updating config for {entity.kind[:-1]} {name}.")


def _warn_of_unknown(connection: AdminConnection, changes: Mapping[str, str | None]) -> None:
    """A broker keeps properties that it does not know, for plugins; most are typing errors."""
    brokers = connection.describe_cluster().brokers
    if not brokers:
        raise ConnectError("the cluster names no brokers now: try again")
    broker = Resource(ResourceType.BROKER, str(brokers[0].id))
    known = [entry.name for entry in describe_configs(connection, [broker])[broker]]
    added = {
        name: value for name, value in changes.items() if value is not None and not name.startswith("listener.name.")
    }
    warn_of_unknown(added, known, "brokers")


def _parser() -> ToolParser:
    parser = ToolParser("configs", "Describe and alter configurations of topics, brokers and others.")
    add = parser.add_argument
    add_connection_options(parser)
    add("--zookeeper", metavar="HOST:PORT", help="set SCRAM credentials of users without a broker")
    add("--zk-tls-config-file", metavar="FILE", help="with --zookeeper: ZooKeeper's properties for TLS and SASL")
    add("--describe", action="store_true", help="show configurations")
    add("--alter", action="store_true", help="change configurations")
    add("--all", action="store_true", help="show static and default values too, not only dynamic ones")
    add(
        "--entity-type",
        action="append",
        default=[],
        metavar="TYPE",
        help="topics, brokers, broker-loggers, groups, users, clients, ips or client-metrics",
    )
    # Names and defaults go into one list, in the order in which they stand: each belongs
    # to the type in its place.
    names: dict[str, Any] = {"dest": "entity_names", "default": []}
    add("--entity-name", action="append", metavar="NAME", help="a topic, a broker id, and so on", **names)
    add(
        "--entity-default",
        action="append_const",
        const=_DEFAULT_ENTITY,
        help="the default of all brokers, users, clients or ips",
        **names,
    )
    for flag, kind in _FLAGS.items():
        add(f"--{flag}", metavar="NAME", help=f"the same as --entity-type {kind} --entity-name NAME")
    for flag, kind in _DEFAULTS.items():
        add(f"--{flag}", action="store_true", help=f"the same as --entity-type {kind} --entity-default")
    add("--add-config", metavar="K=V,...", help="set these; brackets around values with commas: k1=v1,k2=[v1,v2]")
    add("--add-config-file", metavar="FILE", help="set what this .properties file holds")
    add("--delete-config", action="append", default=[], metavar="K,...", help="take these back to their defaults")
    add("--force", action="store_true", help="ask no questions, which is so without it too")
    add_output_option(parser)
    return parser

"""The properties of a registry's file, schema-registry.properties, as Confluent names them.

A name that protects and that is not supported ends the start; any other unknown name has no effect,
and is named in a warning. In Confluent's registry: `SchemaRegistryConfig`, and `RestConfig`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.settings import Definitions, Kind, Setting, Values, at_least, one_of
from barnabas.net.web_access import (
    WEB_SETTINGS,
    WebAccess,
    WebListener,
    check_unsupported_protection,
    parse_listeners,
    read_web_access,
)
from barnabas.registry.core.settings import RegistrySettings
from barnabas.registry.formats.schema import CompatibilityLevel
from barnabas.registry.http.settings import HttpSettings
from barnabas.registry.storage.membership import GroupTimeouts
from barnabas.registry.storage.settings import StoreSettings

__all__ = ["REGISTRY_REFUSED", "REGISTRY_SETTINGS", "ServerSettings", "parse_server_settings"]

_LEVELS = tuple(level.value for level in CompatibilityLevel)
_PREFIX = "kafkastore."
_CLIENT_PREFIXES = ("security.", "ssl.", "sasl.")


def _level(value: str) -> str | None:
    return None if value.upper() in _LEVELS else f"String must be one of: {', '.join(_LEVELS)}"


_OWN = (
    Setting("listeners", Kind.LIST, "http://0.0.0.0:8081", "Where requests come: http://HOST:PORT,https://HOST:PORT"),
    Setting(
        "metrics.http.address", Kind.STRING, "", "Where Prometheus gets the metrics, HOST:PORT; by default nowhere"
    ),
    Setting("host.name", Kind.STRING, "", "The host at which the other instances reach this one"),
    Setting("host.port", Kind.INT, "0", "The port at which they reach it; 0: the listener's", at_least(0)),
    Setting(
        "inter.instance.protocol",
        Kind.STRING,
        "",
        "http or https: which listener the other instances use (default: http if there is one)",
        one_of("", "http", "https"),
    ),
    Setting("kafkastore.bootstrap.servers", Kind.LIST, None, "The brokers", required=True),
    Setting("kafkastore.topic", Kind.STRING, "_schemas", "The topic of the schemas"),
    Setting(
        "kafkastore.topic.replication.factor",
        Kind.INT,
        "3",
        "Its replicas when it is created, or as many as there are brokers",
        at_least(1),
    ),
    Setting("kafkastore.timeout.ms", Kind.INT, "10000", "How long a write may take", at_least(100)),
    Setting("kafkastore.init.timeout.ms", Kind.INT, "60000", "How long the start may take", at_least(1)),
    Setting("kafkagroup.session.timeout.ms", Kind.INT, "10000", "After it an instance is gone", at_least(100)),
    Setting("kafkagroup.heartbeat.interval.ms", Kind.INT, "3000", "How often it says it is there", at_least(10)),
    Setting("kafkagroup.rebalance.timeout.ms", Kind.INT, "30000", "How long the group waits for it", at_least(100)),
    Setting("schema.registry.group.id", Kind.STRING, "schema-registry", "The instances' group"),
    Setting("leader.eligibility", Kind.BOOLEAN, "true", "Whether this instance may lead"),
    Setting("master.eligibility", Kind.BOOLEAN, "true", "The old name of leader.eligibility"),
    Setting("leader.connect.timeout.ms", Kind.INT, "10000", "For the connection to the leader", at_least(1)),
    Setting("leader.read.timeout.ms", Kind.INT, "60000", "For the leader's answer", at_least(1)),
    Setting(
        "leader.ssl.truststore.location",
        Kind.STRING,
        "",
        "What verifies the leader's certificate (default: ssl.truststore.location)",
    ),
    Setting("schema.compatibility.level", Kind.STRING, "", "The level where none is set", None),
    Setting("avro.compatibility.level", Kind.STRING, "", "The old name of schema.compatibility.level", None),
    Setting("mode.mutability", Kind.BOOLEAN, "true", "Whether modes can be changed"),
    Setting("schema.reject.empty.subject", Kind.BOOLEAN, "false", "Whether each schema needs a subject with a name"),
    Setting("schema.search.max.limit", Kind.INT, "1000", "The most schemas in one answer", at_least(1)),
    Setting("schema.cache.size", Kind.INT, "1000", "Parsed schemas that are kept", at_least(1)),
    Setting("request.timeout.ms", Kind.INT, "60000", "How long a request may take", at_least(100)),
    Setting("size.limit.filter.max.request.body.size", Kind.INT, "4194304", "The largest body in bytes", at_least(1)),
    Setting("read.only", Kind.BOOLEAN, "false", "Whether this instance refuses all that writes"),
    Setting("authorization.acls", Kind.BOOLEAN, "false", "Whether users need the cluster's rights to topics"),
    Setting("authorization.super.users", Kind.LIST, "", "Users who need none"),
    Setting("authentication.read.only.users", Kind.LIST, "", "Users who may only read"),
)
REGISTRY_SETTINGS = Definitions((*_OWN, *WEB_SETTINGS))

# What an instance of Confluent's with these values protects, or checks, and this one does not.
REGISTRY_REFUSED = {
    "kafkastore.topic.skip.validation": "the topic is always checked",
    "enable.fips": "there is no FIPS mode",
    "resource.extension.class": "extensions are Java classes",
    "schema.registry.resource.extension.class": "extensions are Java classes",
    "init.resource.extension.class": "extensions are Java classes",
    "metadata.encoder.secret": "metadata is not encrypted",
    "confluent.schema.registry.authorizer.class": "authorizers are Java classes",
    "response.http.headers.config": "no headers are added to answers",
    "schema.registry.inter.instance.protocol": "use inter.instance.protocol",
    "inter.instance.listener.name": "listeners have no names: use inter.instance.protocol",
    "kafkastore.connection.url": "brokers are named by kafkastore.bootstrap.servers",
    "authorization.method": "use authorization.acls",
    "authentication.roles": "each user of authentication.users.file may use the registry; see authentication.read.only.users",
}
# What these may say without an effect: that nothing is wanted of them.
_HARMLESS = frozenset(("", "false", "*", "none"))
_WITHOUT_EFFECT = frozenset(
    (
        *("kafkastore.group.id", "kafkastore.write.max.retries", "kafkastore.update.handlers"),
        *("kafkastore.checkpoint.dir", "kafkastore.checkpoint.version", "kafkastore.init.wait.for.reader"),
    )
)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All that an instance is given."""

    listeners: tuple[WebListener, ...]
    host_name: str
    host_port: int
    inter_instance_scheme: str
    values: Values
    access: WebAccess
    registry: RegistrySettings
    store: StoreSettings
    http: HttpSettings
    acl_super_users: frozenset[str] | None
    """The principals that need no rights; None where no user needs any."""
    warnings: tuple[str, ...]


def parse_server_settings(texts: Mapping[str, str], read: Callable[[str], Mapping[str, str]]) -> ServerSettings:
    """The settings of a file's texts. Raises `ConfigError`.

    ``read`` reads a properties file of users or tokens."""
    for name, reason in REGISTRY_REFUSED.items():
        if texts.get(name, "").strip().lower() not in _HARMLESS:
            raise ConfigError(f"{name} is not supported: {reason}. Leave it out")
    client = {name.removeprefix(_PREFIX): text for name, text in texts.items() if _is_of_clients(name)}
    own = {name: text for name, text in texts.items() if name not in REGISTRY_REFUSED and not _is_of_clients(name)}
    values = REGISTRY_SETTINGS.parse(own)
    unknown = check_unsupported_protection(values)
    for name in unknown:
        if name.startswith(_PREFIX) and name not in _WITHOUT_EFFECT:
            # A typing error in a name that protects would be no protection.
            raise ConfigError(f"{name} is not a setting of the registry{_hint(name)}")
    listeners = tuple(parse_listeners("listeners", values["listeners"]))
    return ServerSettings(
        listeners=listeners,
        host_name=values["host.name"],
        host_port=values["host.port"],
        inter_instance_scheme=_inter_instance_scheme(values["inter.instance.protocol"], listeners),
        values=values,
        access=read_web_access(values, read),
        registry=_registry_settings(values),
        store=_store_settings(values, client),
        http=_http_settings(values),
        acl_super_users=_acl_super_users(values),
        warnings=tuple(f"{name} has no effect{'' if name in _WITHOUT_EFFECT else _hint(name)}" for name in unknown),
    )


def _is_of_clients(name: str) -> bool:
    return name.startswith(_PREFIX) and name.removeprefix(_PREFIX).startswith(_CLIENT_PREFIXES)


def _hint(name: str) -> str:
    return did_you_mean(name, [setting.name for setting in REGISTRY_SETTINGS])


def _inter_instance_scheme(asked: str, listeners: tuple[WebListener, ...]) -> str:
    schemes = [each.scheme for each in listeners]
    if asked and asked not in schemes:
        raise ConfigError(f"inter.instance.protocol is {asked}, and no listener is: {', '.join(map(str, listeners))}")
    return asked or ("http" if "http" in schemes else "https")


def _registry_settings(values: Values) -> RegistrySettings:
    level = values["schema.compatibility.level"] or values["avro.compatibility.level"] or "BACKWARD"
    if wrong := _level(level):
        raise ConfigError(f"Invalid value {level} for configuration schema.compatibility.level: {wrong}")
    return RegistrySettings(
        compatibility_level=CompatibilityLevel(level.upper()),
        mode_mutability=values["mode.mutability"],
        reject_empty_subject=values["schema.reject.empty.subject"],
        schema_search_limit=values["schema.search.max.limit"],
        parsed_schemas=values["schema.cache.size"],
    )


def _store_settings(values: Values, client: Mapping[str, str]) -> StoreSettings:
    session_ms, heartbeat_ms = values["kafkagroup.session.timeout.ms"], values["kafkagroup.heartbeat.interval.ms"]
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"kafkagroup.heartbeat.interval.ms={heartbeat_ms} is not below kafkagroup.session.timeout.ms={session_ms}"
        )
    # As Confluent writes them, with the protocol: PLAINTEXT://host:9092.
    servers = ",".join(server.rpartition("://")[2] for server in values["kafkastore.bootstrap.servers"])
    if not servers:
        raise ConfigError("kafkastore.bootstrap.servers is empty: HOST:PORT is expected")
    return StoreSettings(
        bootstrap_servers=servers,
        properties=client,
        topic=values["kafkastore.topic"],
        replication_factor=values["kafkastore.topic.replication.factor"],
        timeout_ms=values["kafkastore.timeout.ms"],
        init_timeout_ms=values["kafkastore.init.timeout.ms"],
        group_id=values["schema.registry.group.id"],
        is_eligible=values["leader.eligibility"] and values["master.eligibility"] and not values["read.only"],
        group_timeouts=GroupTimeouts(session_ms, values["kafkagroup.rebalance.timeout.ms"], heartbeat_ms),
    )


def _acl_super_users(values: Values) -> frozenset[str] | None:
    names = values["authorization.super.users"]
    if not values["authorization.acls"]:
        if names:
            raise ConfigError("authorization.super.users is set, and authorization.acls is not true")
        return None
    if values["authentication.method"] == "NONE":
        raise ConfigError("authorization.acls is true, and authentication.method is NONE: no user is known")
    return frozenset(name if name.startswith("User:") else f"User:{name}" for name in names)


def _http_settings(values: Values) -> HttpSettings:
    read_only_users = frozenset(values["authentication.read.only.users"])
    if read_only_users and values["authentication.method"] == "NONE":
        raise ConfigError("authentication.read.only.users is set, and authentication.method is NONE: no user is known")
    return HttpSettings(
        request_timeout_ms=values["request.timeout.ms"],
        max_body_bytes=values["size.limit.filter.max.request.body.size"],
        leader_connect_timeout_ms=values["leader.connect.timeout.ms"],
        leader_read_timeout_ms=values["leader.read.timeout.ms"],
        group_id=values["schema.registry.group.id"],
        is_read_only=values["read.only"],
        read_only_users=read_only_users,
        connection_limit=values["server.connection.limit"],
        idle_timeout_ms=values["idle.timeout.ms"],
    )

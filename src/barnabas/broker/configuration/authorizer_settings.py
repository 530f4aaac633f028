"""The properties of the authorizer, which decides what each principal may do.

``super.users`` and ``allow.everyone.if.no.acl.found`` belong to the authorizer and are not in
Kafka's own list. Their dynamic values count from the next start of a broker, as in Kafka. Where
there is no authorizer, a value that asks for protection is refused: a broker that ignored it would
look protected and be open.

In Kafka: `AclAuthorizer.configure`.
"""

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.broker.configuration.table import BrokerRow, read_broker_table
from barnabas.security.acls import ACL_AUTHORIZER, is_principal

__all__ = [
    "AUTHORIZER_NAMES",
    "ROWS_AUTHORIZER",
    "ROWS_OF_AUTHORIZER",
    "changes_authorizer",
    "check_authorizer",
    "super_users",
]


def super_users(text: str | None) -> frozenset[str]:
    """The principals in super.users. Raises ValueError."""
    parts = (text or "").split(";")
    while parts and not parts[-1]:  # Java's split leaves them out
        parts.pop()
    users = frozenset(part.strip() for part in parts)
    for user in users:
        if not is_principal(user):
            raise ValueError(f"expected a string in format principalType:principalName but got {user}")
    return users


def _wrong_super_users(text: str) -> str | None:
    try:
        super_users(text)
    except ValueError as error:
        return str(error)
    return None


def _wrong_authorizer(text: str) -> str | None:
    if text in ("", ACL_AUTHORIZER):
        return None
    return f"the only authorizer of this version is {ACL_AUTHORIZER}, whose access control lists are in ZooKeeper"


_CHECKS = {"authorizer": _wrong_authorizer, "principals": _wrong_super_users}

ROWS_AUTHORIZER: list[BrokerRow] = list(
    read_broker_table(
        """
authorizer.class.name string authorizer - ''
    Class of the authorizer, which decides what each principal may do. Empty for none: everything is
    allowed. The one that there is: kafka.security.authorizer.AclAuthorizer.
""",
        _CHECKS,
    )
)
"""The property of Kafka's list."""

ROWS_OF_AUTHORIZER: list[BrokerRow] = list(
    read_broker_table(
        """
super.users string principals cluster -
    Principals that may do everything, such as User:admin, separated by semicolons. Needs an
    authorizer. A dynamic value counts from the next start of a broker.
allow.everyone.if.no.acl.found boolean - cluster false
    Whether a resource without ACLs is open to everyone. Without an authorizer everything is open, and
    false is refused. A dynamic value counts from the next start of a broker.
""",
        _CHECKS,
    )
)
"""Properties that DescribeConfigs does not list."""

AUTHORIZER_NAMES = tuple(row.setting.name for row in (*ROWS_AUTHORIZER, *ROWS_OF_AUTHORIZER))

_ADVICE = (
    "Invalid value {text} for configuration {name}: clients are not authorized while authorizer.class.name is empty. "
    "Set it to {authorizer}, or remove {name} to start without this protection"
)


def check_authorizer(values: Values) -> None:
    """Raises `ConfigError` for protection that needs an authorizer where there is none."""
    if values["authorizer.class.name"]:
        return
    name = "super.users"
    if values[name]:
        raise ConfigError(_ADVICE.format(name=name, text=values[name], authorizer=ACL_AUTHORIZER))
    name = "allow.everyone.if.no.acl.found"
    if values.is_set(name) and not values[name]:
        raise ConfigError(_ADVICE.format(name=name, text="false", authorizer=ACL_AUTHORIZER))


def changes_authorizer(static: Values, name: str, text: str) -> bool:
    """Whether a dynamic text asks for protection that the properties file does not have, or that
    cannot be understood."""
    if name == "authorizer.class.name":
        return text.strip() not in ("", static[name])
    try:
        static.replace({name: text})
    except ConfigError:
        return True
    return False

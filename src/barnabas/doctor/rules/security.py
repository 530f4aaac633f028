"""Rules on certificates, listeners without protection, and rights that are too wide.

In Kafka: ``ssl.keystore.*``, ``listeners``, ``authorizer.class.name``, `AclAuthorizer` and
`StandardAuthorizer`.
"""

from collections.abc import Iterator, Mapping

from barnabas.client.admin.acls import Acl
from barnabas.client.admin.configurations import ConfigEntry
from barnabas.doctor.amounts import duration
from barnabas.doctor.evidence.cluster import MomentPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart
from barnabas.doctor.evidence.coordination import ZnodesPart
from barnabas.doctor.evidence.listeners import listeners_of
from barnabas.doctor.evidence.security import AclsPart, CertificatesPart, CertificateView, ShownChain
from barnabas.doctor.finding import Danger, Finding, MendingCommand, NotApplicableError
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import counted, some

__all__ = [
    "anonymous_super_user",
    "certificates_end",
    "everyone_may_where_no_acl_is",
    "everyone_may_write_znodes",
    "open_acls",
    "plain_listeners_beside_protected_ones",
]

ENDS_SOON_MS = 30 * 86_400_000
_ANYONE = "User:*"
_ANONYMOUS = "User:ANONYMOUS"
_WIDE = ("ALL", "ALTER", "CLUSTER_ACTION", "ALTER_CONFIGS")
_MOST_LINES = 6


@rule("certificate-ends", Danger.COMING, "a server's TLS certificate, or one above it, ends within 30 days")
def certificates_end(certificates: CertificatesPart, moment: MomentPart) -> Iterator[Finding]:
    """Clients and brokers that verify it cannot connect afterwards."""
    if not certificates.chains and not certificates.gaps:
        raise NotApplicableError("no listener has TLS")
    for is_over in (True, False):
        found: dict[str, str] = {}
        for chain in certificates.chains:
            for position, each in enumerate(chain.chain):
                if (line := _end(each, moment.now_ms, is_over=is_over)) is not None:
                    role = "its certificate" if position == 0 else "a certificate above it"
                    found[_place(chain)] = f"{_place(chain)}, {role} {each.subject}: {line}"
                    break
        if found:
            one = len(found) == 1
            yield Finding(
                tuple(found),
                f"The certificate of {some(found)} {'is not valid' if is_over else 'ends soon'}: clients that verify it "
                f"{'cannot connect' if is_over else 'will not connect afterwards'}.",
                tuple(found.values())[:_MOST_LINES],
                (
                    f"put a new certificate into the key store of {'this listener' if one else 'these listeners'} "
                    "(ssl.keystore.location), and restart the servers one after the other",
                ),
                danger=Danger.UNAVAILABLE if is_over else None,
            )


def _place(chain: ShownChain) -> str:
    return f"{chain.server} ({chain.listener} at {chain.address})"


def _end(each: CertificateView, now_ms: int, *, is_over: bool) -> str | None:
    left_ms = each.not_after_ms - now_ms
    if is_over:
        if left_ms <= 0:
            return f"it ended {duration(-left_ms)} ago"
        early_ms = each.not_before_ms - now_ms
        return f"it begins in {duration(early_ms)}" if early_ms > 0 else None
    return f"it ends in {duration(left_ms)}" if 0 < left_ms <= ENDS_SOON_MS else None


@rule(
    "plain-listener",
    Danger.COMING,
    "brokers authorize users, and a listener lets everyone in without a password or TLS",
)
def plain_listeners_beside_protected_ones(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """Who connects there is User:ANONYMOUS, and what is sent can be read on the way."""
    found: dict[str, str] = {}
    for broker_id, entries in _with_authorizer(configs).items():
        listeners = listeners_of(entries)
        if not any(each.protocol != "PLAINTEXT" for each in listeners):
            continue
        between = _value(entries, "inter.broker.listener.name") or _value(entries, "security.inter.broker.protocol")
        for each in listeners:
            if each.protocol == "PLAINTEXT":
                use = ", used among brokers" if between == each.name else ""
                found[f"broker {broker_id}"] = (
                    f"broker {broker_id}: {each.name}://{each.host}:{each.port} is PLAINTEXT{use}, "
                    f"beside {some(other.name for other in listeners if other.protocol != 'PLAINTEXT')}"
                )
    if found:
        yield Finding(
            tuple(found),
            f"A listener without protection stands beside protected ones: {some(found)}. Who connects there is "
            "User:ANONYMOUS, without a password.",
            tuple(found.values())[:_MOST_LINES],
            ("take the PLAINTEXT listener out of listeners, or let only the brokers' network reach its port",),
        )


@rule("everyone-without-acl", Danger.COMING, "everyone may use what no ACL names (allow.everyone.if.no.acl.found)")
def everyone_may_where_no_acl_is(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """A new topic is open to all until its first entry."""
    found: dict[str, str] = {}
    for broker_id, entries in _with_authorizer(configs).items():
        if _value(entries, "allow.everyone.if.no.acl.found") == "true":
            found[f"broker {broker_id}"] = f"broker {broker_id}: allow.everyone.if.no.acl.found=true"
    if found:
        yield Finding(
            tuple(found),
            "Everyone may read, write and delete what no ACL names, each new topic among it.",
            tuple(found.values())[:_MOST_LINES],
            (
                "give each user its rights; `barnabas acls --suggest` finds which it needs; then set "
                "allow.everyone.if.no.acl.found=false and restart the brokers",
            ),
        )


@rule("anonymous-super-user", Danger.COMING, "User:ANONYMOUS is a super user")
def anonymous_super_user(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """Who does not say who it is may do everything."""
    found: dict[str, str] = {}
    for broker_id, entries in _with_authorizer(configs).items():
        users = (_value(entries, "super.users") or "").split(";")
        if _ANONYMOUS in (user.strip() for user in users):
            found[f"broker {broker_id}"] = f"broker {broker_id}: super.users={_value(entries, 'super.users')}"
    if found:
        yield Finding(
            tuple(found),
            "Clients that do not say who they are may do everything: User:ANONYMOUS is a super user.",
            tuple(found.values())[:_MOST_LINES],
            ("take User:ANONYMOUS out of super.users; brokers need a protected listener among themselves then",),
        )


@rule("open-acls", Danger.COMING, "an ACL lets everyone change the cluster, or do everything with a resource")
def open_acls(acls: AclsPart) -> Iterator[Finding]:
    """Entries for User:* or User:ANONYMOUS that are wider than reading and writing."""
    found = [each for each in acls.entries if _is_open(each)]
    if found:
        first = found[0]
        lines = [
            f"{each.principal} from {each.host}: {each.permission} {each.operation} on {each.resource_type} "
            f"{each.pattern_type}:{each.resource_name}"
            for each in found
        ]
        yield Finding(
            tuple(f"{each.resource_type} {each.resource_name}" for each in found),
            f"{counted(len(found), 'ACL lets', 'ACLs let')} everyone do more than read and write: "
            f"{some(f'{each.operation} on {each.resource_type} {each.resource_name}' for each in found)}.",
            tuple(lines[:_MOST_LINES]),
            ("add entries for the users who need it, then remove this one:", _removal(first)),
        )


def _is_open(entry: Acl) -> bool:
    return (
        entry.permission == "ALLOW"
        and entry.principal in (_ANYONE, _ANONYMOUS)
        and (entry.operation in _WIDE)
        and entry.host == "*"
    )


_OPTIONS = {
    "TOPIC": "--topic",
    "GROUP": "--group",
    "TRANSACTIONAL_ID": "--transactional-id",
    "DELEGATION_TOKEN": "--delegation-token",
    "USER": "--user-principal",
}


def _removal(entry: Acl) -> MendingCommand:
    option = _OPTIONS.get(entry.resource_type)
    resource = ("--cluster",) if option is None else (option, entry.resource_name)
    operation = "".join(map(str.capitalize, entry.operation.split("_")))
    pattern = ("--resource-pattern-type", entry.pattern_type.lower()) if entry.pattern_type != "LITERAL" else ()
    return MendingCommand.of(
        *("acls", "--remove", "--force", "--allow-principal", entry.principal),
        *("--operation", operation, *resource, *pattern),
    )


@rule("open-znodes", Danger.COMING, "brokers authorize users, and everyone may change their znodes")
def everyone_may_write_znodes(configs: BrokerConfigsPart, znodes: ZnodesPart) -> Iterator[Finding]:
    """Who reaches the coordination service needs no right of a broker: ACLs, topics and users'
    passwords are in znodes."""
    _with_authorizer(configs)
    if znodes.writable:
        yield Finding(
            znodes.writable,
            "Brokers authorize users, and who reaches the coordination service may change its znodes, ACLs among them.",
            (f"world:anyone has more than read on {some(znodes.writable)}",),
            (
                "let only brokers reach the coordination service's port, or give it SASL or TLS and set "
                "zookeeper.set.acl=true: see docs/how-to/control-access.md",
            ),
        )


def _with_authorizer(configs: BrokerConfigsPart) -> Mapping[int, Mapping[str, ConfigEntry]]:
    """The properties of the brokers that have an authorizer."""
    found = {broker_id: each for broker_id, each in configs.entries.items() if _value(each, "authorizer.class.name")}
    if not found:
        raise NotApplicableError("no broker has an authorizer")
    return found


def _value(entries: Mapping[str, ConfigEntry], name: str) -> str | None:
    entry = entries.get(name)
    return None if entry is None else entry.value

"""Access control lists, and the identities of connections: ZooKeeper's ACLs and
authentication providers.

Schemes: ``world:anyone``; ``auth`` (at creation: the connection's own identities);
``digest:user:base64(hash(user: password))``; ``ip:address[/bits]``, IPv4 and (as in ZooKeeper since
3.9.4) IPv6; ``sasl:user`` and ``x509:subject`` where the server authenticates clients that way.
Every connection has its ip identity; a digest one comes with an auth packet.

The identity ``super`` passes every list. A connection gets it for the credentials of the super
user; with skipACL every connection has it.

In ZooKeeper: `AuthenticationProvider` and its classes, and `ZooKeeperServer.checkACL`.
"""

import base64
import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.records import ACL, OPEN_ACL, Id

__all__ = [
    "SUPER",
    "AccessList",
    "AccessRules",
    "SaslServer",
    "authenticate",
    "checked_acl",
    "digest_id",
    "hide_digests",
    "ip_id",
    "is_allowed",
    "parse_network",
    "require",
    "user_name",
]

SUPER = Id("super", "")
"""The identity of the super user."""

_MAX_EXPANDED = 10_000
_MAX_NETWORKS = 1000
"""A thousand of IPv6 take 6 ms to read."""
_OCTETS = {str(value): value for value in range(256)}
_KERBEROS_NAME = re.compile(r"[^/@]*(/[^/@]*)?@[^/@]*")


class SaslServer(Protocol):
    """The server's side of a SASL mechanism: ZooKeeperSaslServer."""

    @property
    def user(self) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's message. Raises `SaslError`."""
        ...


@dataclass(frozen=True, slots=True)
class AccessRules:
    """How clients prove who they are: ZooKeeper's ProviderRegistry and AuthenticationHelper.

    ``schemes`` are those with an authentication provider. ``required_schemes`` are those of which a
    client must have an identity before its first request; empty if none is required.
    """

    schemes: frozenset[str] = frozenset(("digest", "ip"))
    required_schemes: frozenset[str] = frozenset()
    digest_algorithm: str = "sha1"
    super_digest: str = field(default="", repr=False)
    """``user:base64(hash)`` of the super user; empty for none"""
    super_users: frozenset[Id] = frozenset()
    """the sasl and x509 identities that are super users"""
    skip_acl: bool = False
    new_sasl_server: Callable[[], SaslServer] | None = None
    """the server's side of a mechanism, for each authentication; None without SASL"""
    maintains_failed_sasl_clients: bool = False

    def with_super(self, identity: Id) -> list[Id]:
        """The identity, and the super user's if it is one."""
        return [SUPER, identity] if identity in self.super_users else [identity]

    def is_authenticated(self, ids: Iterable[Id]) -> bool:
        """Whether a connection with these identities may send requests."""
        return not self.required_schemes or any(each.scheme in self.required_schemes for each in ids)


def ip_id(address: str) -> Id:
    """The identity that a connection has by its address."""
    return Id("ip", address)


def digest_id(credentials: bytes, algorithm: str = "sha1") -> Id:
    """The identity that ``user:password`` proves."""
    user = credentials.partition(b":")[0].decode("utf-8", "replace")
    digest = hashlib.new(algorithm, credentials).digest()
    return Id("digest", f"{user}:{base64.b64encode(digest).decode('ascii')}")


def authenticate(rules: AccessRules, scheme: str, auth: bytes | None) -> list[Id]:
    """The identities to add for an auth packet.

    AUTH_FAILED for a scheme that is not authenticated in this way."""
    if scheme == "digest" and scheme in rules.schemes:
        identity = digest_id(auth or b"", rules.digest_algorithm)
        return [SUPER, identity] if identity.id == rules.super_digest else [identity]
    if scheme == "ip":
        return []  # the connection has it already
    raise KeeperError(ErrorCode.AUTH_FAILED)


def user_name(identity: Id) -> str | None:
    """The user to show; None for the super user, who is shown by the identity that proved it."""
    if identity.scheme == "super":
        return None
    name = identity.id or ""
    return name.partition(":")[0] if identity.scheme == "digest" else name


_Address = tuple[int, int]
"""The version of IP, and the address as a number."""


class AccessList(tuple[ACL, ...]):  # noqa: SLOT001  # a tuple has no slots, and few lists exist
    """The entries of a list, equal to a plain tuple of them, with what checks of them need.

    A client may give a node tens of thousands of entries, and one small multiRead asks for a
    thousand checks of them. So the first check of a list sorts its entries by what they are
    compared with, and later ones are a few look-ups:

        world:anyone            one number, the permissions of everyone
        ip:address/bits         for each number of bits, the permissions by the network's bits
        digest, sasl, x509      the permissions by scheme and id
    """

    _hash: int | None = None
    _rights: "_Rights | None" = None

    def __hash__(self) -> int:
        # Kept, because each node that is stored looks up its list.
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash

    def allows(self, perms: int, ids: Iterable[Id]) -> bool:
        """Whether the entries give one of the identities one of ``perms``.

        The super user has all."""
        rights = self._rights
        if rights is None:
            rights = self._rights = _Rights(self)
        return rights.allow(perms, ids)


class _Rights:
    """The permissions of a list, by what they are for."""

    __slots__ = ("anyone", "named", "networks", "sasl")

    def __init__(self, acl: Sequence[ACL]) -> None:
        self.anyone = 0
        self.sasl = 0
        """what any sasl entry gives: the sasl user ``super`` has all of these"""
        self.named: dict[Id, int] = {}
        self.networks: dict[_Address, dict[int, int]] = {}
        """by the version of IP and the number of the bits after the network's"""
        for perms, identity in acl:
            scheme, name = identity
            if scheme == "ip":
                self._add_network(name or "", perms)
                continue
            if scheme == "world" and name == "anyone":
                self.anyone |= perms
            elif scheme == "sasl":
                self.sasl |= perms
            self.named[identity] = self.named.get(identity, 0) | perms

    def _add_network(self, text: str, perms: int) -> None:
        try:
            version, value, rest = parse_network(text)
        except ValueError:
            return  # from a log or snapshot only: no address is in it
        found = self.networks.setdefault((version, rest), {})
        found[value] = found.get(value, 0) | perms

    def allow(self, perms: int, ids: Iterable[Id]) -> bool:
        if self.anyone & perms:
            return True
        for identity in ids:
            scheme, name = identity
            if scheme == "super":
                return True
            if scheme == "ip":
                given = self._of_address(name or "") if self.networks else 0
            else:
                given = self.named.get(identity, 0)
                if scheme == "sasl" and name == "super":
                    given |= self.sasl
            if given & perms:
                return True
        return False

    def _of_address(self, text: str) -> int:
        own = _parsed_address(text)
        if own is None:
            return 0
        given = 0
        for (version, rest), found in self.networks.items():
            if version == own[0]:
                given |= found.get(own[1] >> rest, 0)
        return given


@lru_cache(maxsize=1024)
def _parsed_address(text: str) -> _Address | None:
    """The address of a client; None if the text is not an address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return address.version, int(address)


def parse_network(text: str) -> tuple[int, int, int]:
    """The version of IP of ``address/bits``, the first bits as a number, and the
    number of bits after them.

    Raises `ValueError`, also for a mask in the place of the bits, as in ZooKeeper.
    """
    host, slash, bits = text.partition("/")
    version, value = _number_of(host)
    rest = 0
    if slash:
        if not (bits.isascii() and bits.isdecimal()):
            raise ValueError(f"{text} does not end with a number of bits")
        rest = (32 if version == 4 else 128) - int(bits)
        if rest < 0:
            raise ValueError(f"{text} has more bits than an address")
    return version, value >> rest, rest


def _number_of(host: str) -> _Address:
    """As `ipaddress` reads it, and IPv4 in a third of its time. Raises `ValueError`."""
    octets = host.split(".")
    if len(octets) == 4:
        try:
            first, second, third, fourth = [_OCTETS[octet] for octet in octets]
        except KeyError:
            pass  # "::ffff:1.2.3.4", or no address
        else:
            return 4, first << 24 | second << 16 | third << 8 | fourth
    address = ipaddress.ip_address(host)
    return address.version, int(address)


def require(acl: Sequence[ACL], perms: int, ids: Iterable[Id], path: str) -> None:
    """NO_AUTH unless the list gives one of the identities one of ``perms``."""
    if acl is not OPEN_ACL and not is_allowed(acl, perms, ids):
        raise KeeperError(ErrorCode.NO_AUTH, path)


def is_allowed(acl: Sequence[ACL], perms: int, ids: Iterable[Id]) -> bool:
    """Whether the list gives one of the identities one of ``perms``.

    An empty list, and the super user, have all."""
    if not acl or acl is OPEN_ACL:
        return True
    return (acl if isinstance(acl, AccessList) else AccessList(acl)).allows(perms, ids)


def checked_acl(acl: Sequence[ACL] | None, ids: Iterable[Id], path: str, schemes: frozenset[str]) -> Sequence[ACL]:
    """The list for a node: without doubles, ``auth`` replaced by the connection's identities.

    INVALID_ACL for an empty list, an unknown scheme, an id that its scheme does not allow,
    ``auth`` without identity, ``auth`` so often that it stands for more than 10,000 entries, and
    more than 1,000 entries for addresses. A null is answered as Apache's server does:
    INVALID_ACL for a scheme, MARSHALLING_ERROR for an id, except that the id of ``auth`` has no
    meaning and may be null.
    """
    if acl is not None and len(acl) == 1 and acl[0] == OPEN_ACL[0]:
        return acl
    checked: list[ACL] = []
    expanded = 0
    if acl is not None and len(acl) > _MAX_NETWORKS and sum(entry.id.scheme == "ip" for entry in acl) > _MAX_NETWORKS:
        raise KeeperError(ErrorCode.INVALID_ACL, path)
    for entry in _distinct(acl or [], path):
        scheme, name = entry.id
        if scheme == "auth":
            own = [ACL(entry.perms, each) for each in ids if each.scheme in schemes and each.scheme != "ip"]
            if not own:
                raise KeeperError(ErrorCode.INVALID_ACL, path)
            expanded += len(own)
            if expanded > _MAX_EXPANDED:
                raise KeeperError(ErrorCode.INVALID_ACL, path)
            checked += own
        elif name is None and (scheme == "world" or scheme in schemes):
            raise KeeperError(ErrorCode.MARSHALLING_ERROR, path)
        elif (scheme == "world" or scheme in schemes) and _is_valid_id(scheme, name or ""):
            checked.append(entry)
        else:
            raise KeeperError(ErrorCode.INVALID_ACL, path)
    if not checked:
        raise KeeperError(ErrorCode.INVALID_ACL, path)
    return checked


def _distinct(acl: Sequence[ACL], path: str) -> Sequence[ACL]:
    """The entries without doubles.

    Apache's server fails to compare a null with the entries before it."""
    distinct: dict[ACL, None] = {}
    before: set[tuple[int, str | None]] = set()
    """the permissions of the entries so far, with the scheme and with None for any"""
    for entry in acl:
        perms, (scheme, name) = entry
        if (scheme is None or name is None) and (perms, scheme) in before:
            raise KeeperError(ErrorCode.MARSHALLING_ERROR, path)
        before.add((perms, scheme))
        before.add((perms, None))
        distinct[entry] = None
    return list(distinct)


def _is_valid_id(scheme: str | None, name: str) -> bool:
    match scheme:
        case "world":
            return name == "anyone"
        case "digest":
            return name.rstrip(":").count(":") == 1
        case "ip":
            try:
                parse_network(name)
            except ValueError:
                return False
            return True
        case "sasl":
            return "@" not in name or _KERBEROS_NAME.fullmatch(name) is not None
        case "x509":
            return "=" in name
    return False


def hide_digests(acl: Iterable[ACL]) -> list[ACL]:
    """The list without password hashes, for clients that may read a node and not administer it."""
    return [
        ACL(perms, Id("digest", (each.id or "").partition(":")[0] + ":x"))
        if each.scheme == "digest"
        else ACL(perms, each)
        for perms, each in acl
    ]

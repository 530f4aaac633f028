"""Access control lists, and the identities of connections: ZooKeeper's ACLs and authentication providers.

Schemes: ``world:anyone``; ``auth`` (at creation: the connection's own identities); ``digest:user:base64(sha1(user:
password))``; ``ip:address[/bits]``. Every connection has its ip identity; a digest one comes with an auth packet.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Sequence

from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.records import ACL, OPEN_ACL, Id

__all__ = ["authenticate", "checked_acl", "digest_id", "hide_digests", "ip_id", "is_allowed", "require"]


def ip_id(address: str) -> Id:
    """The identity that a connection has by its address."""
    return Id("ip", address)


def digest_id(credentials: bytes) -> Id:
    """The identity that ``user:password`` proves."""
    user = credentials.partition(b":")[0].decode("utf-8", "replace")
    digest = hashlib.sha1(credentials).digest()  # noqa: S324  # ZooKeeper's scheme
    return Id("digest", f"{user}:{base64.b64encode(digest).decode('ascii')}")


def authenticate(scheme: str, auth: bytes | None) -> Id | None:
    """The identity to add for an auth packet; None where the scheme adds none. AUTH_FAILED for an unknown scheme."""
    if scheme == "digest":
        return digest_id(auth or b"")
    if scheme == "ip":
        return None  # the connection has it already
    raise KeeperError(ErrorCode.AUTH_FAILED)


def require(acl: Sequence[ACL], perms: int, ids: Iterable[Id], path: str) -> None:
    """NO_AUTH unless the list gives one of the identities one of ``perms``."""
    if acl is not OPEN_ACL and not is_allowed(acl, perms, ids):
        raise KeeperError(ErrorCode.NO_AUTH, path)


def is_allowed(acl: Sequence[ACL], perms: int, ids: Iterable[Id]) -> bool:
    """Whether the list gives one of the identities one of ``perms``; an empty list gives all."""
    if not acl:
        return True
    for given, (scheme, wanted) in acl:
        if not given & perms:
            continue
        if scheme == "world" and wanted == "anyone":
            return True
        for own_scheme, own in ids:
            if own_scheme == scheme and (_ip_matches(own, wanted) if scheme == "ip" else own == wanted):
                return True
    return False


def _ip_matches(own: str, wanted: str) -> bool:
    try:
        return ipaddress.ip_address(own) in ipaddress.ip_network(wanted, strict=False)
    except (ValueError, TypeError):
        return False


def checked_acl(acl: list[ACL] | None, ids: Iterable[Id], path: str) -> list[ACL]:
    """The list for a node: without doubles, ``auth`` replaced by the connection's identities.

    INVALID_ACL for an empty list, an unknown scheme, an id that its scheme does not allow, ``auth`` without identity.
    """
    if acl is not None and len(acl) == 1 and acl[0] == OPEN_ACL[0]:
        return acl
    checked: list[ACL] = []
    for entry in dict.fromkeys(acl or ()):
        scheme, name = entry.id
        if scheme == "auth":
            own = [ACL(entry.perms, each) for each in ids if each.scheme == "digest"]
            if not own:
                raise KeeperError(ErrorCode.INVALID_ACL, path)
            checked += own
        elif _is_valid_id(scheme, name):
            checked.append(entry)
        else:
            raise KeeperError(ErrorCode.INVALID_ACL, path)
    if not checked:
        raise KeeperError(ErrorCode.INVALID_ACL, path)
    return checked


def _is_valid_id(scheme: str, name: str) -> bool:
    match scheme:
        case "world":
            return name == "anyone"
        case "digest":
            return name.rstrip(":").count(":") == 1
        case "ip":
            try:
                ipaddress.ip_network(name, strict=False)
            except ValueError:
                return False
            return True
    return False


def hide_digests(acl: Iterable[ACL]) -> list[ACL]:
    """The list without password hashes, for clients that may read a node and not administer it."""
    return [
        ACL(perms, Id("digest", each.id.partition(":")[0] + ":x")) if each.scheme == "digest" else ACL(perms, each)
        for perms, each in acl
    ]

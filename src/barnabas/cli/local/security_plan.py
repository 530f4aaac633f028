"""How the listeners of ``barnabas up`` are secured: as the data dir has it, or as
``--secure``, ``--security``, ``--user`` and ``--acl`` say."""

import argparse
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.private_files import write_private
from barnabas.base.settings import properties_text
from barnabas.broker.configuration.kraft import refuse_kraft
from barnabas.cli.local.held_cluster import HeldCluster
from barnabas.cli.machine.server_names import broker_config

if TYPE_CHECKING:
    from barnabas.broker.configuration.listeners import ListenerAddress
    from barnabas.testing.security import ClusterSecurity

__all__ = ["INTER_BROKER", "SecurityPlan", "client_file", "held_listener", "plan_security", "write_client_files"]

INTER_BROKER = "inter.broker.listener.name"
_FOLDER = "security"
_PLAINTEXT = "PLAINTEXT"
_SECURE = "SASL_SSL"
_AUTHORIZER = "authorizer.class.name"
_SUPER_USERS = "super.users"
_FILE_NAME = re.compile(r"(?!(?:client|users)$)[A-Za-z0-9_][A-Za-z0-9_.-]*")
# An option may correct whatever else is wrong.
_OF_LISTENERS = ("listeners", "listener.security.protocol.map")


@dataclass(frozen=True, slots=True)
class SecurityPlan:
    """The protocol, certificates and users, and what options change of those of the data dir."""

    security: "ClusterSecurity | None" = None
    changed: Mapping[str, str | None] = field(default_factory=dict)
    """Properties to be changed in the files that are there; None removes one."""
    new_users: Collection[str] = ()
    """Users whose credentials the cluster does not have, or not with this password."""

    @property
    def protocol(self) -> str:
        return _PLAINTEXT if self.security is None else self.security.protocol


def client_file(directory: Path) -> Path:
    """What clients of a secured cluster connect with: of ``--secure``, the user who may do
    everything. It is written when the users are there."""
    return directory / _FOLDER / "client.properties"


def write_client_files(security: "ClusterSecurity", bootstrap_servers: str, directory: Path) -> dict[str, Path]:
    """Write what clients connect with, a file for each user, which only the owner can read.

    Returns the files by user."""
    files = {user: directory / _FOLDER / f"{user}.properties" for user in security.users if _FILE_NAME.fullmatch(user)}
    first = next((user for user in (*security.admins, *security.users) if user in security.users), "")
    files[first] = client_file(directory)
    for user, path in files.items():
        properties = {"bootstrap.servers": bootstrap_servers, **security.client_properties(user or None, java=True)}
        write_private(path, properties_text(properties).encode())
    return files


def held_listener(directory: Path, number: int, texts: Mapping[str, str]) -> "ListenerAddress | None":
    """A broker's first listener; None where its file names none.

    Raises `BarnabasError` that names the file."""
    from barnabas.broker.configuration.definitions import DEFINITIONS
    from barnabas.broker.configuration.listeners import listeners

    path = directory / broker_config(number)
    refuse_kraft(str(path), texts)
    if "listeners" not in texts:
        return None
    of_listeners = {name: text for name, text in texts.items() if name in _OF_LISTENERS}
    try:
        return listeners(DEFINITIONS.parse({"zookeeper.connect": "", **of_listeners}))[0]
    except ConfigError as error:
        raise BarnabasError(f"{path}: {error}") from None


def plan_security(
    given: argparse.Namespace, users: Mapping[str, str], held: HeldCluster, directory: Path
) -> SecurityPlan:
    """What to make.

    Raises `BarnabasError` for options that do not fit, and for what was secured by hand."""
    number, texts = next(((n, each) for n, each in held.brokers.items() if each), (0, {}))
    listener = held_listener(directory, number, texts)
    former = listener.protocol if listener else _PLAINTEXT
    is_ours = former != _PLAINTEXT and texts.get(INTER_BROKER) == former and (directory / _FOLDER).is_dir()
    if given.security is None and former != _PLAINTEXT and not is_ours:
        raise BarnabasError(
            f"{directory / broker_config(number)} secures its listener by hand, and barnabas up could not connect: start each server "
            "with barnabas server-start, or give --security"
        )
    wanted: str = given.security or (_SECURE if given.secure and former == _PLAINTEXT else former)
    if wanted == _PLAINTEXT:
        options = {"--user": bool(users), "--secure": given.secure, "--acl": given.acl is not None}
        for option in (option for option, is_given in options.items() if is_given):
            raise BarnabasError(f"{option} needs --security SASL_SSL or SASL_PLAINTEXT")
        return SecurityPlan(None, dict.fromkeys(_names(former, texts)) if former != _PLAINTEXT else {})
    from barnabas.testing.security import ClusterSecurity  # few clusters need it

    is_new_admin = given.secure and not (is_ours and _AUTHORIZER in texts)
    asked = _with_usual(users, wanted) if is_new_admin else dict(users)
    security = ClusterSecurity.of_broker(wanted, former, texts, asked) if is_ours else ClusterSecurity(wanted, asked)
    security.directory = directory / _FOLDER
    _plan_authorizer(security, given, texts, asked)
    changed: dict[str, str | None] = {}
    properties = security.broker_properties()
    if texts and wanted != former:
        changed = {**dict.fromkeys(_names(former, texts)), **properties}
    elif texts and asked:
        changed = {name: value for name, value in properties.items() if name.endswith(".jaas.config")}
    if texts and security.acls is not None:
        changed |= {name: properties[name] for name in (_AUTHORIZER, _SUPER_USERS)}
    has_users = is_ours and client_file(directory).exists()
    return SecurityPlan(security, changed, tuple(asked) if has_users else tuple(security.users))


def _with_usual(users: Mapping[str, str], protocol: str) -> dict[str, str]:
    """The users of ``--secure``: the administrator, those named, or one application."""
    from barnabas.testing.security import ADMIN, APPLICATION, new_password

    if not protocol.startswith("SASL"):
        raise BarnabasError("--secure needs users: leave --security out, or give SASL_SSL or SASL_PLAINTEXT")
    admin = {ADMIN: users.get(ADMIN) or new_password()}
    others = {name: password for name, password in users.items() if name != ADMIN}
    return {**admin, **(others or {APPLICATION: new_password()})}


def _plan_authorizer(
    security: "ClusterSecurity", given: argparse.Namespace, texts: Mapping[str, str], added: Mapping[str, str]
) -> None:
    """What users may do: as ``--acl`` says, or each all with what begins with the own name."""
    from barnabas.testing.security import ADMIN, acls_of_text, rights_to_own

    supers = [name for name in texts.get(_SUPER_USERS, "").split(";") if name]
    is_held = _AUTHORIZER in texts
    if not (given.secure or given.acl or is_held):
        return
    admins = [name.removeprefix("User:") for name in supers if name != security.own_principal]
    security.admins = dict.fromkeys([*admins, *([ADMIN] if given.secure else [])])
    if given.acl is not None:
        security.acls = [acl for text in given.acl if text.strip() for acl in acls_of_text(text)]
        return
    names = added if is_held else security.users
    security.acls = [acl for name in names if name not in security.admins for acl in rights_to_own(name)]


def _names(protocol: str, texts: Mapping[str, str]) -> list[str]:
    """The properties that secure a listener with a protocol; those of the authorizer that was made
    for it, too."""
    if protocol == _PLAINTEXT:
        return []
    from barnabas.testing.security import ClusterSecurity

    users = {"user": "password"} if protocol.startswith("SASL") else {}
    security = ClusterSecurity(protocol, users)
    if security.own_principal in texts.get(_SUPER_USERS, "").split(";"):
        security.acls = []
    return list(security.broker_properties())

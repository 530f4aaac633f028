"""How a cluster for tests is secured: certificates that are made for it, users, and
what clients connect with.

Certificates sign themselves, are for this machine alone and last for a week; the command
``openssl`` makes them in some milliseconds. Brokers authenticate each other as a user of their own.

With access control lists, brokers have an authorizer: their own user and ``admins`` may do
everything, all others what the lists allow. Users and lists are in the coordination service before
the first broker starts.
"""

import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.base.private_files import make_private_dirs, write_private
from barnabas.base.randomness import new_random
from barnabas.broker.authorizer.acl_store import AclStore
from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.broker.cluster.service import perform_without_broker
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.repository import SCRAM_USERS_PATHS, alter_scram_znodes
from barnabas.broker.configuration.scram_credentials import ScramChange
from barnabas.client.admin.acl_options import acl_of_binding, acls_of_words, binding_of_acl
from barnabas.client.admin.acls import Acl
from barnabas.client.admin.scram_users import salt_password
from barnabas.net.sockets import SocketNetwork
from barnabas.security.acls import ACL_AUTHORIZER, WILDCARD
from barnabas.security.jaas import LoginModule, jaas_text, login_module
from barnabas.security.mechanisms import LOGIN_MODULES, SASL_MECHANISMS, SCRAM_MECHANISMS
from barnabas.security.needed_acls import NeededAcls
from barnabas.security.scram import MIN_SCRAM_ITERATIONS

__all__ = [
    "ADMIN",
    "APPLICATION",
    "SECURITY_PROTOCOLS",
    "ClusterSecurity",
    "acls_of_text",
    "new_password",
    "rights_to_own",
    "suggestions",
]

SECURITY_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = "scram"
_SCRAM_PROTOCOL = "SASL_PLAINTEXT"
ADMIN = "admin"
APPLICATION = "app"
_TYPE = "User:"
_ORGANIZATION = "Barnabas test cluster"
_BROKER = "barnabas-broker"
_USER = "user_"
_NAME = re.compile(r"""[^\s{};="',\\]+""")
_PASSWORD_BYTES = 24
_DAYS = 7
_RENEWED_S = 4 * 24 * 3600.0


class Access(TypedDict, total=False):
    """The options of a cluster about who may connect, and do what."""

    security: str | None
    """The protocol of the listeners; None for PLAINTEXT."""
    users: Mapping[str, str] | None
    """Passwords by name."""
    acls: Iterable[Acl | str] | None
    """Entries, or texts with kafka-acls's options; None for no authorizer."""
    record_acls: bool
    """Allow everything, and note what would be needed."""


class ClusterSecurity:
    """The protocol of a cluster's listeners, its certificates and its users."""

    @classmethod
    def of(
        cls,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        acls: Iterable[Acl | str] | None = None,
        record_acls: bool = False,
    ) -> "ClusterSecurity | None":
        """What options of a cluster ask for (`Access`); None if they ask for nothing.

        ``"scram"`` is SASL_PLAINTEXT, which lists have without a protocol. Users that are named
        only in lists have passwords of their own, and so has ``admin``, who may do everything
        unless lists or ``users`` name somebody so. Raises `BarnabasError`.
        """
        protocol = security
        has_authorizer = acls is not None or record_acls
        if protocol is None and users and not has_authorizer:
            raise BarnabasError('users need security="SASL_SSL" or "SASL_PLAINTEXT"')
        if protocol is None and not has_authorizer:
            return None
        entries = _entries(acls or ())
        named: list[str] = []
        if protocol is None or protocol.lower() == _SCRAM:
            protocol = _SCRAM_PROTOCOL
        if has_authorizer and protocol.startswith("SASL"):
            named = [*(users or {}), *_user_names(entries)] or [APPLICATION]
            users = {name: (users or {}).get(name, new_password()) for name in [*named, ADMIN]}
        made = cls(protocol, users)
        if has_authorizer:
            made.acls = entries
            made.admins = [ADMIN] if made.has_sasl and ADMIN not in named else []
        return made

    @classmethod
    def of_broker(
        cls, protocol: str, former: str, texts: Mapping[str, str], users: Mapping[str, str]
    ) -> "ClusterSecurity":
        """The security of a cluster with the users in a broker's properties, whose
        protocol was ``former``.

        ``users`` come first, and may have other passwords. Raises `BarnabasError`.
        """
        if not (protocol.startswith("SASL") and former.startswith("SASL")):
            return cls(protocol, users)
        name = _login_name(former)
        if name not in texts:
            raise BarnabasError(f"{name} is not there, which has the users")
        options = login_module(texts[name], name).options
        held = {key.removeprefix(_USER): password for key, password in options.items() if key.startswith(_USER)}
        broker_password = held.pop(_BROKER, None)
        security = cls(protocol, {**users, **{user: password for user, password in held.items() if user not in users}})
        security._broker_password = broker_password or security._broker_password
        return security

    def __init__(self, protocol: str, users: Mapping[str, str] | None) -> None:
        """``users`` are passwords by name. Raises `BarnabasError`."""
        if protocol not in SECURITY_PROTOCOLS:
            raise BarnabasError(
                f"security={protocol!r}: there are {', '.join(SECURITY_PROTOCOLS)}{did_you_mean(protocol, SECURITY_PROTOCOLS)}"
            )
        self.protocol = protocol
        self.users = dict(users or {})
        self.has_tls, self.has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
        if self.has_sasl and not self.users:
            raise BarnabasError(f'security={protocol!r} needs users: users={{"ann": "her-password"}}')
        if self.users and not self.has_sasl:
            raise BarnabasError(
                f"security={protocol!r} has no users: clients show the certificate of client_properties()"
            )
        for name, password in self.users.items():
            if not _NAME.fullmatch(name) or not password or "\0" in password or "\n" in password:
                raise BarnabasError(f"the user {name!r} cannot be: names have no spaces and quotes, passwords one line")
        self.directory = Path()
        """Where the files are."""
        self.acls: list[Acl] | None = None
        """What users may do; None without an authorizer, where they may do everything."""
        self.admins: Collection[str] = ()
        """Users who may do everything."""
        self._broker_password = new_password()

    def prepare(self) -> None:
        """Make the certificates, unless they are there. Raises `BarnabasError`."""
        make_private_dirs(self.directory)
        self.directory.chmod(0o700)
        if self.has_tls:
            for name in ("broker", "client"):
                path = self._path(f"{name}.pem")
                if not path.exists() or time.time() - path.stat().st_mtime > _RENEWED_S:
                    self._make_certificate(name)
            certificates = [self._path(f"{name}.crt").read_bytes() for name in ("broker", "client")]
            self._trusted().write_bytes(b"".join(certificates))

    def _path(self, name: str) -> Path:
        return self.directory / name

    def _make_certificate(self, name: str) -> None:
        key, certificate = self._path(f"{name}.key"), self._path(f"{name}.crt")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", str(_DAYS), "-subj", f"/O={_ORGANIZATION}/CN={name}", "-keyout", str(key)]
        command += ["-addext", "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost", "-out", str(certificate)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise BarnabasError(
                "the command openssl is not there: it makes the certificates of a secured cluster"
            ) from None
        except subprocess.CalledProcessError as error:
            raise BarnabasError(f"openssl made no certificate: {error.stderr.strip()}") from None
        write_private(self._path(f"{name}.pem"), key.read_bytes() + certificate.read_bytes())
        key.unlink()

    # Brokers

    @property
    def own_principal(self) -> str:
        """Who brokers are to each other."""
        return f"{_TYPE}{_BROKER}" if self.has_sasl else f"{_TYPE}CN=broker,O={_ORGANIZATION}"

    @property
    def super_users(self) -> list[str]:
        """The principals that may do everything."""
        return [self.own_principal, *(f"{_TYPE}{name}" for name in self.admins)]

    def broker_properties(self) -> dict[str, str]:
        """What makes a broker's one listener a secured one, but for `listeners` itself."""
        properties = {"inter.broker.listener.name": self.protocol}
        if self.acls is not None:
            properties |= {"authorizer.class.name": ACL_AUTHORIZER, "super.users": ";".join(self.super_users)}
        if self.has_tls:
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._path("broker.pem")),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._trusted()),
            }
        if self.protocol == "SSL":
            properties["ssl.client.auth"] = "required"
        if self.has_sasl:
            users = {_BROKER: self._broker_password, **self.users}
            options = {"username": _BROKER, "password": self._broker_password}
            options |= {f"{_USER}{name}": password for name, password in users.items()}
            properties |= {
                "sasl.enabled.mechanisms": ",".join(SASL_MECHANISMS),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                _login_name(self.protocol): _jaas("PLAIN", options),
            }
        return properties

    def _trusted(self) -> Path:
        """The certificates of the brokers and of the client."""
        return self._path("trusted.pem")

    def prepare_coordination(self, zookeeper_connect: str, names: Collection[str] | None = None) -> None:
        """Write users, or those named, and access control lists into the coordination service,
        before a broker starts. Raises `BarnabasError`."""
        changes = []
        users = {user: password for user, password in self.users.items() if names is None or user in names}
        for user, password in users.items():
            for name, mechanism in SCRAM_MECHANISMS.items():
                salt, salted = salt_password(password, name, MIN_SCRAM_ITERATIONS)
                changes.append(ScramChange(user, mechanism.number, MIN_SCRAM_ITERATIONS, salt, salted))
        bindings = [binding_of_acl(acl) for acl in self.acls or ()]
        if not changes and self.acls is None:
            return

        def steps() -> Steps[list[object]]:
            yield from alter_scram_znodes(changes)
            if self.acls is None:
                return []
            store = AclStore(Authorizer(), SystemClock().wall_ms, new_random())
            yield from store.load()
            return [*(yield from store.create(bindings))]

        for failure in perform_without_broker(SocketNetwork, zookeeper_connect, steps, paths=SCRAM_USERS_PATHS):
            if isinstance(failure, BarnabasError):
                raise failure

    # Clients

    def own_properties(self) -> dict[str, str]:
        """Like `client_properties`, for the cluster itself."""
        return self._properties(_BROKER, self._broker_password, "PLAIN")

    def client_properties(
        self, user: str | None = None, mechanism: str = "SCRAM-SHA-256", *, java: bool = False
    ) -> dict[str, str]:
        """What a client connects with, in the names of librdkafka, or of Java's clients.

        The first user unless one is named. Raises `BarnabasError` for a user or a
        mechanism that is not there.
        """
        password = ""
        if self.has_sasl:
            user = next(iter(self.users)) if user is None else user
            if user not in self.users:
                raise BarnabasError(f"there is no user {user}: they are {', '.join(self.users)}")
            if mechanism not in SASL_MECHANISMS:
                raise BarnabasError(f"there is no mechanism {mechanism}: they are {', '.join(SASL_MECHANISMS)}")
            password = self.users[user]
        elif user is not None:
            raise BarnabasError(f"security={self.protocol!r} has no users")
        return self._properties(user or "", password, mechanism, java=java)

    def _properties(self, user: str, password: str, mechanism: str, *, java: bool = False) -> dict[str, str]:
        properties = {"security.protocol": self.protocol}
        certificate = str(self._path("broker.crt"))
        own = str(self._path("broker.pem" if user == _BROKER else "client.pem"))
        if self.has_tls and java:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": certificate}
        elif self.has_tls:
            properties["ssl.ca.location"] = certificate
        if self.protocol == "SSL" and java:
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": own}
        elif self.protocol == "SSL":
            properties |= {"ssl.certificate.location": own, "ssl.key.location": own}
        if self.has_sasl:
            properties["sasl.mechanism"] = mechanism
            if java:
                properties["sasl.jaas.config"] = _jaas(mechanism, {"username": user, "password": password})
            else:
                properties |= {"sasl.username": user, "sasl.password": password}
        return properties


def acls_of_text(text: str) -> list[Acl]:
    """The entries for which options in one text stand: ``--allow-principal User:ann --operation
    Read --topic orders``.

    Raises `BarnabasError`."""
    try:
        return acls_of_words(shlex.split(text))
    except (BarnabasError, ValueError) as error:
        raise BarnabasError(f"{text}: {error}") from None


def new_password() -> str:
    """A password that cannot be guessed."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def rights_to_own(user: str) -> list[Acl]:
    """All rights to the topics, groups and transactional ids that begin with a user's name and a
    hyphen."""
    kinds = ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
    return [Acl(kind, f"{user}-", f"{_TYPE}{user}", "ALL", pattern_type="PREFIXED") for kind in kinds]


def suggestions(needed: NeededAcls | None, *, fold_prefixes: bool) -> list[Acl]:
    """The smallest set of entries for what a cluster has recorded.

    Raises `BarnabasError` for None, a cluster that does not record."""
    if needed is None:
        raise BarnabasError("what clients need is not recorded: record_acls=True does it")
    return [acl_of_binding(each) for each in needed.bindings(folds_prefixes=fold_prefixes)]


def _entries(acls: "Iterable[Acl | str]") -> list[Acl]:
    """Entries, of which some are texts. Raises `BarnabasError`."""
    if isinstance(acls, str):
        raise BarnabasError("acls is a list: of Acl(...), or of texts as kafka-acls takes them")
    entries = [each for acl in acls for each in ([acl] if isinstance(acl, Acl) else acls_of_text(acl))]
    for entry in entries:
        binding_of_acl(entry)
    return entries


def _user_names(entries: Sequence[Acl]) -> Iterable[str]:
    """The users that entries name."""
    names = (entry.principal.removeprefix(_TYPE) for entry in entries if entry.principal.startswith(_TYPE))
    return (name for name in names if name != WILDCARD)


def _login_name(protocol: str) -> str:
    """The property of a broker with the users of its listener."""
    return f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    return jaas_text(LoginModule(LOGIN_MODULES[mechanism], "required", dict(options)))

"""How a cluster for tests is secured: certificates that are made for it, users, and
what clients connect with.

Certificates sign themselves, are for this machine alone and last for a week; the command
``openssl`` makes them in some milliseconds. Brokers authenticate each other as a user of their own.
There is no authorizer: every user may do everything.
"""

import contextlib
import re
import secrets
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.base.private_files import make_private_dirs, write_private
from barnabas.client.admin.scram_users import ScramPassword, alter_scram_users
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.security.jaas import LoginModule, jaas_text, login_module
from barnabas.security.mechanisms import LOGIN_MODULES, SASL_MECHANISMS, SCRAM_MECHANISMS

__all__ = ["SECURITY_PROTOCOLS", "ClusterSecurity"]

SECURITY_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_BROKER = "barnabas-broker"
_USER = "user_"
_NAME = re.compile(r"""[^\s{};="',\\]+""")
_DAYS = 7
_RENEWED_S = 4 * 24 * 3600.0
_WAIT_S = 30.0
_POLL_S = 0.005


class ClusterSecurity:
    """The protocol of a cluster's listeners, its certificates and its users."""

    @classmethod
    def of(cls, protocol: str | None, users: Mapping[str, str] | None) -> "ClusterSecurity | None":
        """None without a protocol. Raises `BarnabasError`."""
        if protocol is None and users:
            raise BarnabasError('users need security="SASL_SSL" or "SASL_PLAINTEXT"')
        return None if protocol is None else cls(protocol, users)

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
        self._broker_password = secrets.token_urlsafe(24)

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
        command += ["-days", str(_DAYS), "-subj", f"/O=Barnabas test cluster/CN={name}", "-keyout", str(key)]
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

    def broker_properties(self) -> dict[str, str]:
        """What makes a broker's one listener a secured one, but for `listeners` itself."""
        properties = {"inter.broker.listener.name": self.protocol}
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

    def create_users(self, bootstrap_servers: str, names: Collection[str] | None = None) -> None:
        """Give each user, or those named, SCRAM credentials.

        Every broker knows them when this returns. Raises `BarnabasError`."""
        users = {user: password for user, password in self.users.items() if names is None or user in names}
        if not users:
            return
        passwords = [
            ScramPassword(user, mechanism, password)
            for user, password in users.items()
            for mechanism in SCRAM_MECHANISMS
        ]
        with AdminConnection(bootstrap_servers, self.own_properties()) as admin:
            alter_scram_users(admin, passwords)
        # Each broker takes changes over in their order.
        *_, user = users
        end = time.monotonic() + _WAIT_S
        for server in bootstrap_servers.split(","):
            while not self._can_log_in(server, user):
                if time.monotonic() > end:
                    raise BarnabasError(f"the broker at {server} does not know the user {user} after {_WAIT_S:.0f} s")
                time.sleep(_POLL_S)

    def _can_log_in(self, server: str, user: str) -> bool:
        with (
            contextlib.suppress(BarnabasError, OSError),
            AdminConnection(server, self.client_properties(user, [*SCRAM_MECHANISMS][-1])) as admin,
        ):
            admin.describe_cluster()
            return True
        return False

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
        certificate, own = str(self._path("broker.crt")), str(self._path("client.pem"))
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


def _login_name(protocol: str) -> str:
    """The property of a broker with the users of its listener."""
    return f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"


def _jaas(mechanism: str, options: Mapping[str, str]) -> str:
    return jaas_text(LoginModule(LOGIN_MODULES[mechanism], "required", dict(options)))

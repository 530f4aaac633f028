"""The schema registry of a `barnabas.testing.Cluster`: one instance on a thread of its own.

Where the cluster is secured, so is the registry: https where the brokers have TLS, and the
cluster's users with their passwords.
"""

from collections.abc import Mapping
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.base.private_files import write_private
from barnabas.base.settings import properties_text, read_properties
from barnabas.testing.security import ClusterSecurity
from barnabas.testing.server_thread import ServiceThread

__all__ = ["ClusterRegistry", "registry_properties", "write_registry_users"]

_HOST = "127.0.0.1"
_USERS_FILE = "registry-users.properties"


def registry_properties(
    bootstrap_servers: str, brokers: int, security: ClusterSecurity | None, port: int, host: str = _HOST
) -> dict[str, str]:
    """A schema-registry.properties for a cluster of so many brokers.

    It listens on a free port for 0. `write_registry_users` writes the file of users that it
    names."""
    scheme = "https" if security is not None and security.has_tls else "http"
    properties = {
        "listeners": f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        "kafkastore.bootstrap.servers": bootstrap_servers,
        "kafkastore.topic.replication.factor": str(min(3, brokers)),
    }
    if security is None:
        return properties
    properties |= {f"kafkastore.{name}": text for name, text in security.own_properties().items()}
    if security.has_tls:
        properties["ssl.keystore.location"] = str(security.directory / "broker.pem")
        properties["leader.ssl.truststore.location"] = str(security.directory / "broker.crt")
    if security.protocol == "SSL":
        properties["ssl.truststore.location"] = str(security.directory / "trusted.pem")
        properties["ssl.client.authentication"] = "REQUIRED"
    if security.has_sasl:
        users = str(security.directory / _USERS_FILE)
        properties |= {"authentication.method": "BASIC", "authentication.users.file": users}
        if security.acls is not None:
            properties |= {"authorization.acls": "true", "authorization.super.users": ",".join(security.admins)}
    return properties


def write_registry_users(security: ClusterSecurity) -> None:
    """Write the cluster's users and their passwords for the registry, for their owner alone."""
    if security.has_sasl:
        write_private(security.directory / _USERS_FILE, properties_text(security.users).encode())


class ClusterRegistry:
    """A registry that runs. Its text is its address."""

    def __init__(self, properties: Mapping[str, str], security: ClusterSecurity | None = None) -> None:
        """Start it. Raises `BarnabasError`."""
        try:
            from barnabas.registry.server import RegistryServer
        except ModuleNotFoundError as error:
            raise BarnabasError(f"the schema registry needs {error.name}: {install_command('registry')}") from None
        self._security = security
        if security is not None:
            write_registry_users(security)
        self._thread = ServiceThread(
            "barnabas-registry",
            lambda: RegistryServer(properties, lambda path: read_properties(Path(path).read_text("latin-1"))),
        )
        self.url = self._thread.service.url
        """Where clients connect, such as ``http://127.0.0.1:8081``."""

    def client_properties(self, user: str | None = None) -> dict[str, str]:
        """What confluent-kafka's `SchemaRegistryClient` takes: the address, the certificate, and
        the first user unless one is named. Raises `BarnabasError` for a user who is not there."""
        properties = {"url": self.url}
        security = self._security
        if security is None:
            return properties
        if security.has_tls:
            properties["ssl.ca.location"] = str(security.directory / "broker.crt")
        if security.has_sasl:
            name = next(iter(security.users)) if user is None else user
            if name not in security.users:
                raise BarnabasError(f"there is no user {name}: they are {', '.join(security.users)}")
            properties["basic.auth.user.info"] = f"{name}:{security.users[name]}"
        elif security.protocol == "SSL":
            own = str(security.directory / "client.pem")
            properties |= {"ssl.certificate.location": own, "ssl.key.location": own}
        return properties

    def stop(self) -> None:
        """Stop it, cleanly; a second call does nothing."""
        self._thread.stop()

    def __str__(self) -> str:
        return self.url

"""The REST proxy of a `barnabas.testing.Cluster`: one instance on a thread of its own.

Where the cluster is secured, so is the proxy: https where the brokers have TLS. Where it has users,
the brokers authenticate those of requests, so that access control lists hold for them.
"""

from collections.abc import Mapping
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command
from barnabas.base.settings import read_properties
from barnabas.testing.security import ClusterSecurity
from barnabas.testing.server_thread import ServiceThread

__all__ = ["ClusterRest", "rest_properties"]

_HOST = "127.0.0.1"
_LOGIN = ("sasl.username", "sasl.password")


def rest_properties(
    bootstrap_servers: str,
    security: ClusterSecurity | None,
    port: int,
    host: str = _HOST,
    *,
    registry_url: str | None = None,
) -> dict[str, str]:
    """A kafka-rest.properties for a cluster. It listens on a free port for 0."""
    scheme = "https" if security is not None and security.has_tls else "http"
    properties = {
        "listeners": f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        "bootstrap.servers": bootstrap_servers,
    }
    # The registry of a cluster with SSL alone asks for certificates, which the proxy has none of.
    if registry_url is not None and (security is None or security.protocol != "SSL"):
        properties["schema.registry.url"] = registry_url
    if security is None:
        return properties
    # Not those of the brokers, whose rights requests must not have.
    given = security.client_properties()
    properties |= {f"client.{name}": text for name, text in given.items() if name not in _LOGIN}
    if security.has_tls:
        properties["ssl.keystore.location"] = str(security.directory / "broker.pem")
        if "schema.registry.url" in properties:
            properties["schema.registry.ssl.ca.location"] = str(security.directory / "broker.crt")
    if security.protocol == "SSL":
        properties["ssl.truststore.location"] = str(security.directory / "trusted.pem")
        properties["ssl.client.authentication"] = "REQUIRED"
    if security.has_sasl:
        properties |= {"authentication.method": "BASIC", "authentication.propagate": "true"}
    return properties


class ClusterRest:
    """A proxy that runs. Its text is its address."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Start it. Raises `BarnabasError`."""
        try:
            from barnabas.rest.server import RestServer
        except ModuleNotFoundError as error:
            raise BarnabasError(f"the REST proxy needs {error.name}: {install_command('registry')}") from None
        self._thread = ServiceThread(
            "barnabas-rest",
            lambda: RestServer(properties, lambda path: read_properties(Path(path).read_text("latin-1"))),
        )
        self.url = str(self._thread.service.listeners[0])
        """Where clients connect, such as ``http://127.0.0.1:8082``."""

    def stop(self) -> None:
        """Stop it, cleanly; a second call does nothing."""
        self._thread.stop()

    def __str__(self) -> str:
        return self.url

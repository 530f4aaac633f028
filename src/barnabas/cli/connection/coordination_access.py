"""How tools connect to the coordination service: in the clear or with TLS, with or without a user.

The properties are those of ZooKeeper's clients, or the names that Kafka's tools have for them
(`barnabas.coordination.client.client_config`).

In Kafka: `AclAuthorizer.zkClientConfigFromKafkaConfigAndMap`. In ZooKeeper: `ZKClientConfig`.
"""

import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.network import Network
from barnabas.cli.output.colours import print_warning
from barnabas.coordination.client.client_config import client_sasl, client_tls, read_client_config
from barnabas.net.sockets import SocketNetwork
from barnabas.net.ssl_contexts import client_context
from barnabas.net.tls import TlsNetwork
from barnabas.wire.jute.errors import KeeperError

if TYPE_CHECKING:
    from barnabas.broker.cluster.steps import Steps

__all__ = ["ClientAccess", "tls_refusal"]

T = TypeVar("T")
_ANSWER_MS = 10_000


class ClientAccess:
    """What a client's configuration says about TLS and SASL."""

    def __init__(self, properties: Mapping[str, str], source: str) -> None:
        """``source`` is where the properties are from, for warnings about those without effect.

        Raises `ConfigError`, also for names that are unknown."""
        values = read_client_config(properties)
        for name in values.unknown():
            print_warning(f"{name} in {source} has no effect")
        tls = client_tls(values, _read_text)
        context = client_context(tls) if tls is not None else None
        self.network: Callable[[], Network] = (
            partial(TlsNetwork, client=context) if context is not None else SocketNetwork
        )
        self.new_sasl_client = client_sasl(values, _read_text, secrets.token_bytes)

    def perform(
        self,
        servers: str,
        steps: "Callable[[], Steps[T]]",
        *,
        paths: Sequence[str] = (),
        timeout_ms: int = _ANSWER_MS,
    ) -> T:
        """`perform_without_broker`, with an error that says why TLS failed."""
        # Imports much that no other use needs.
        from barnabas.broker.cluster.service import perform_without_broker

        try:
            return perform_without_broker(
                self.network,
                servers,
                steps,
                paths=paths,
                timeout_ms=timeout_ms,
                new_sasl_client=self.new_sasl_client,
            )
        except KeeperError as error:
            reason = tls_refusal(servers, error.__cause__)
            raise (reason or error) from error


def tls_refusal(servers: str, reason: BaseException | None) -> BarnabasError | None:
    """The error for a connection that failed for this reason, if it is one of TLS."""
    return BarnabasError(f"no connection with TLS to {servers}: {reason}") if isinstance(reason, ssl.SSLError) else None


def _read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")

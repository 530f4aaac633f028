"""Calls from Spark's JVM into this process, which carry a secret: PySpark's own server takes them
from any process of the machine.

For ``foreachBatch`` and listeners PySpark serves a port (py4j's callback server). py4j has a secret
for each direction, but its Java side forgets the one for the way back when PySpark reports the
port. So the client in the JVM is replaced by one that has it, before there is a call. Where py4j is
another one than expected, all stays as PySpark has it, which the caller reports.

Kafka has no counterpart.
"""

from typing import Any

__all__ = ["authenticate_callbacks"]

_CONNECTION_S = 30
"""py4j's own: how long a connection that is not used stays open."""


def authenticate_callbacks(gateway: Any) -> bool:
    """Let the callback server of a new gateway refuse calls without the gateway's secret.

    Whether it does."""
    from py4j.protocol import Py4JError

    try:
        from py4j.clientserver import ClientServer
        from py4j.java_gateway import JavaObject
        from pyspark.java_gateway import ensure_callback_server_started

        if not isinstance(gateway, ClientServer):
            return False
        token = gateway.java_parameters.auth_token
        start: Any = ensure_callback_server_started  # untyped
        start(gateway)
        jvm, server = gateway.jvm, JavaObject("GATEWAY_SERVER", gateway._gateway_client)
        client = jvm.py4j.PythonClient(
            server.getGateway(),
            jvm.java.util.ArrayList(),
            gateway._callback_server.port,
            server.getCallbackClient().getAddress(),
            _CONNECTION_S,
            jvm.java.util.concurrent.TimeUnit.SECONDS,
            jvm.javax.net.SocketFactory.getDefault(),
            server,
            True,
            0,
            token,
        )
        field = jvm.java.lang.Class.forName("py4j.Gateway").getDeclaredField("cbClient")
        field.setAccessible(True)
        field.set(server.getGateway(), client)
        # Takes effect at once: each connection looks here.
        gateway.callback_server_parameters.auth_token = token
    except (Py4JError, ImportError, TypeError, AttributeError):
        return False
    return bool(token)

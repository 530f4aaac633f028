"""The setting that opens a metrics page, of brokers, mirrors, clients and registries.

Kafka has no counterpart: its servers have JMX.
"""

from barnabas.base.errors import ConfigError

__all__ = ["METRICS_ADDRESS", "parse_metrics_address"]

METRICS_ADDRESS = "metrics.http.address"


def parse_metrics_address(text: str, name: str = METRICS_ADDRESS) -> tuple[str, int]:
    """Host (empty for all interfaces) and port of a setting, or of an option.

    Raises `ConfigError`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ConfigError(f"{name}: {text!r} is not host:port")
    return host.strip("[]"), int(port)

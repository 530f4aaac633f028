"""The names of the servers of ``barnabas up``, and of their files in its data dir."""

import re
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "COORDINATION_NAME",
    "SERVICES",
    "Service",
    "authorizer_log_of",
    "broker_config",
    "broker_log_dir",
    "coordination_config",
    "coordination_name",
    "log_of",
    "server_of",
    "server_title",
]

COORDINATION_NAME = "zookeeper"
"""The name of the coordination server; those of an ensemble have a number after it."""


class Service(NamedTuple):
    """A server beside the cluster, of which `up` starts one."""

    config: str
    """The name of its file in the data dir."""
    command: str
    title: str


SERVICES = {
    "registry": Service("schema-registry.properties", "registry", "the schema registry"),
    "rest": Service("kafka-rest.properties", "rest", "the REST proxy"),
}
"""By the names of the servers."""

_FILE = re.compile(r"server(?P<broker>[1-9]\d*)?\.properties|zoo(?P<member>[1-9])?\.cfg", re.ASCII)


def broker_config(number: int) -> str:
    """The name of a broker's file; brokers are numbered from 0."""
    return f"server{number or ''}.properties"


def broker_log_dir(number: int) -> str:
    """The name of a broker's log dir."""
    return f"kafka-logs{number or ''}"


def coordination_config(name: str) -> str:
    """The name of a coordination server's configuration file."""
    return f"zoo{name.removeprefix(COORDINATION_NAME)}.cfg"


def coordination_name(path: str) -> str:
    """The name of the coordination server whose configuration file is at ``path``."""
    return COORDINATION_NAME + Path(path).stem.removeprefix("zoo")


def server_of(file_name: str) -> str | None:
    """The name of the server whose file has this name: "0", "1" ..., or "zookeeper", "zookeeper1"
    ..., or of a service; None for another file."""
    for name, service in SERVICES.items():
        if service.config == file_name:
            return name
    match = _FILE.fullmatch(file_name)
    if match is None:
        return None
    return coordination_name(file_name) if file_name.endswith(".cfg") else match["broker"] or "0"


def server_title(name: str) -> str:
    """A server's name for messages."""
    if name in SERVICES:
        return SERVICES[name].title
    return name if name.startswith(COORDINATION_NAME) else f"broker {name}"


def log_of(logs: Path, name: str) -> Path:
    """The file with a server's log."""
    is_broker = not name.startswith(COORDINATION_NAME) and name not in SERVICES
    return logs / (f"broker-{name}.log" if is_broker else f"{name}.log")


def authorizer_log_of(logs: Path, name: str) -> Path:
    """The file with what a broker's authorizer denied, and with what administrators did."""
    return logs / f"authorizer-{name}.log"

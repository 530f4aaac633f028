"""Configurations of KRaft mode, which brokers here do not have.

Kafka has no counterpart.
"""

from collections.abc import Mapping

from barnabas.base.errors import ConfigError

__all__ = ["refuse_kraft"]


def refuse_kraft(path: str, texts: Mapping[str, str]) -> None:
    """Raise `ConfigError` that says what a configuration of KRaft mode lacks.

    Kafka 4 has no other."""
    found = [name for name in texts if name == "process.roles" or name.startswith("controller.quorum.")]
    if found and ("process.roles" in texts or "zookeeper.connect" not in texts):
        raise ConfigError(
            f"{path} configures a node of KRaft mode ({', '.join(found)}); brokers here run in ZooKeeper mode. Start a "
            "coordination server (barnabas zookeeper-server-start), remove process.roles and controller.*, rename node.id "
            "to broker.id, and set zookeeper.connect=HOST:PORT. barnabas up does all this for a local cluster"
        )

"""Whether librdkafka takes the properties of a flow's clients together. Asks no broker."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer

from barnabas.base.errors import ConfigError
from barnabas.pipelines.cluster.kafka_cluster import open_client
from barnabas.pipelines.cluster.options import client_config
from barnabas.pipelines.flow_file.fields import SpecError
from barnabas.pipelines.outputs.declared import TopicSink
from barnabas.pipelines.specification.spec import Flow

__all__ = ["require_consistent_properties"]


def require_consistent_properties(flow: Flow) -> None:
    """Raise `SpecError` for properties that librdkafka refuses together.

    Each by itself was checked when the file was read. Asks no broker.
    """
    wanted: list[tuple[str, Any, Mapping[str, str]]] = []
    for source in flow.sources:
        wanted.append((f"{source.field}.kafka", Consumer, source.kafka))
        if source.bad_rows_topic:
            wanted.append((f"{source.field}.kafka", Producer, source.producer_kafka))
    wanted += [(f"tables.{each.name}.kafka", Consumer, each.kafka) for each in flow.lookups if each.kafka]
    wanted += [
        (f"sinks[{n}].kafka", Producer, each.kafka) for n, each in enumerate(flow.sinks) if isinstance(each, TopicSink)
    ]
    errors: dict[str, SpecError] = {}
    for field, kind, kafka in wanted:
        # Without brokers a client connects nowhere.
        config = {name: text for name, text in kafka.items() if name != "bootstrap.servers"}
        ours = {"group.id": "check"} if kind is Consumer else {}
        try:
            client = open_client(kind, client_config(config, **ours))
        except ConfigError as error:
            errors.setdefault(field, flow.places.error(field, str(error)))
        else:
            if kind is Consumer:
                client.close()
    if errors:
        raise SpecError.joined(list(errors.values()))

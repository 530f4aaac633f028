"""``barnabas pipeline train``: Spark comes up, reads the flow's topics up to their ends, and
trains the flow's model."""

from collections.abc import Callable
from typing import Any

from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster
from barnabas.pipelines.cluster.offsets import Offsets, to_json, to_spark
from barnabas.pipelines.cluster.options import SourceOptions
from barnabas.pipelines.connector.flow_options import source_options
from barnabas.pipelines.errors import reason_of
from barnabas.pipelines.models.registry import ModelVersion
from barnabas.pipelines.packages import require_extra
from barnabas.pipelines.spark.protection import OPEN_CALLBACKS
from barnabas.pipelines.spark.session import open_flow_session
from barnabas.pipelines.specification.spec import Flow, Source

__all__ = ["train_flow", "train_on"]


def train_flow(flow: Flow, say: Callable[[str], None] = lambda _: None) -> ModelVersion:
    """A new version of the flow's model, which is not in use yet.

    Raises `BarnabasError` with the reason if it fails."""
    require_extra()
    say("starting Spark")
    session = open_flow_session(flow)
    try:
        if session.jvm.has_open_callbacks:
            say(f"warning: {OPEN_CALLBACKS}")
        return train_on(session.spark, flow, say)
    finally:
        session.close()


def train_on(spark: Any, flow: Flow, say: Callable[[str], None] = lambda _: None) -> ModelVersion:
    """The same on a session that runs."""
    from pyspark.errors import PySparkException

    from barnabas.pipelines.frames.transforms import record_schema
    from barnabas.pipelines.frames.views import build_views
    from barnabas.pipelines.models.training import train_model

    assert flow.model is not None
    ends: Offsets = {}

    def read(source: Source) -> Any:
        options = source_options(source)
        asked = SourceOptions.parse(options, streaming=False)
        cluster = KafkaCluster(asked)
        end = cluster.resolve(cluster.partitions(), asked.end)
        ends.update(end)
        reader = spark.read.format("barnabas").schema(record_schema(source))
        for name, text in {**options, "endingOffsets": to_json(end)}.items():
            reader = reader.option(name, text)
        return reader.load()

    try:
        say(f"reading {', '.join(source.pattern or ', '.join(source.topics) for source in flow.sources)}")
        rows = build_views(spark, flow, read).results
        return train_model(rows, flow.model, offsets=to_spark(ends), say=say)
    except PySparkException as error:
        raise reason_of(error) from error

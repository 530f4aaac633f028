"""A source of a flow as options of the format ``barnabas``. Needs no Spark.

Kafka: the options of Spark's connector.
"""

from barnabas.pipelines.specification.spec import Source

__all__ = ["source_options"]


def source_options(source: Source) -> dict[str, str]:
    """A source of a flow as options of the format ``barnabas``."""
    kafka = {**source.kafka, "bootstrap.servers": source.bootstrap_servers, "isolation.level": source.isolation}
    topics = {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
    return {
        **{f"kafka.{name}": text for name, text in kafka.items()},
        **topics,
        "maxOffsetsPerTrigger": str(source.max_offsets_per_trigger),
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
    }

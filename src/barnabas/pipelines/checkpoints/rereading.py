"""Whether records may be read once more, and what that means: what `barnabas pipeline rewind` and
`reset` say and refuse. Needs no Spark.

Rows that are read again replace rows that sinks have. They must be rows of the same records, and of
equal keys the last one must come last, as it did. Both can be wrong:

- A topic was deleted and made again: a position is one of another record now. That matters
  where positions are keys.
- Partitions were added: records of a key are in the partition where they were then and where
  they are now. Kafka orders records within a partition only, so an old value can come after a
  new one. That matters where rows have a key of their own, unless a column orders them
  (`order_by` of a sink).
"""

from collections.abc import Collection, Mapping, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.pipelines.checkpoints.topic_ids import keyed_by_position
from barnabas.pipelines.outputs.registry import kind_of, sink_name
from barnabas.pipelines.specification.spec import POSITION, Flow

__all__ = ["added_partitions", "order_problem", "replacement_problem", "unordered_sinks", "what_repeats"]


def replacement_problem(flow: Flow, topics: Collection[str]) -> str:
    """Why records of topics that were made again must not be read; "" if they may be."""
    sinks = keyed_by_position(flow)
    if not topics or not sinks:
        return ""
    return (
        f"topic {', '.join(sorted(topics))} was deleted and made again since the last run, and {' and '.join(sinks)} knows rows "
        "by their position: records of the new topic would replace rows of the one before. Give the sink another place or "
        "another key, or say that they may: --replace-rows"
    )


def added_partitions(before: Mapping[str, int], now: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions that topics of a source did not have.

    ``before`` has the numbers that are known."""
    return sorted(each for each in now if each.partition >= before.get(each.topic, each.partition + 1))


def unordered_sinks(flow: Flow) -> list[str]:
    """The sinks in which the last row of a key counts, and no column says which one that is."""
    if flow.last_aggregate:
        return []
    return [sink_name(sink) for sink in flow.sinks if sink.key != POSITION and not sink.order_by]


def order_problem(flow: Flow, added: Sequence[TopicPartition]) -> str:
    """Why records of topics that got partitions must not be read again; "" if they may be."""
    sinks = unordered_sinks(flow)
    if not added or not sinks:
        return ""
    return (
        f"{', '.join(map(str, added))} {'was' if len(added) == 1 else 'were'} added since the flow first read the topic, so records of one key may "
        f"be in several partitions, and Kafka keeps no order among these: in {' and '.join(sinks)} old rows could replace newer ones. "
        'Declare a column that grows with each change of a key, order_by = "COLUMN" of the sink (a time or a version), or say that '
        "any order will do: --any-order"
    )


def what_repeats(flow: Flow) -> list[str]:
    """For each sink what it makes of records that come again, and what else becomes of them."""
    how = flow.last_aggregate
    result: list[str] = []
    for sink in flow.sinks:
        text = kind_of(sink).repetition(sink)
        if how and (how.window or how.session):
            text += ". A window that began before the new position gets figures of the repeated records only"
        elif how:
            text += ". Figures are computed from the new position on, and replace those that counted all records"
        result.append(f"{sink_name(sink)} {text}")
    result += [
        f"topic {source.bad_rows_topic} takes the bad rows of {source.name} again, as further dead letters"
        for source in flow.sources
        if source.bad_rows_topic
    ]
    if any(source.bad_rows_topic for source in flow.sources):
        result.append(
            "records that `pipeline replay` has put back come again beside the originals: where these fit by now, both count"
        )
    if any(step.deduplicate for step in flow.steps):
        result.append(
            "deduplicate forgets what came before the new position: a repetition of that is a first row again"
        )
    return result

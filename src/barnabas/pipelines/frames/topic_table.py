"""A topic as a table: the last value of each key.

A record without a value deletes its key, as log compaction reads it. If a key is in several
partitions, because some were added, the record with the latest time counts
(`barnabas.pipelines.frames.ordering`).

A worker keeps the table and reads only what came since. It reads the topic again from its beginning
when the topic was deleted and made again: its id is another, or, on brokers without topic ids, it
ends before the position that was reached.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster
from barnabas.pipelines.cluster.offsets import Offsets, plan_ranges
from barnabas.pipelines.cluster.options import SourceOptions
from barnabas.pipelines.connector.data_source import SCHEMA, read_range
from barnabas.pipelines.frames.ordering import last_record

__all__ = ["TABLE_RECORDS", "read_topic_table"]

TABLE_RECORDS = StructType(
    [field for field in SCHEMA.fields if field.name in ("key", "value", "topic", "partition", "offset")]
)
_READ = StructType([*TABLE_RECORDS.fields, SCHEMA["timestamp"]])
_Rows = dict[Any, dict[int, dict[str, Any]]]
_TOPICS: dict[str, tuple[dict[str, str], Offsets, _Rows, pa.Table]] = {}
"""For each topic that this worker has read: its id, how far it was read, the last record of each
key in each partition, and these records as a table.

Only the position of a record without a key is kept; it is counted as one that does not fit.
"""


def read_topic_table(key: str, source: dict[str, str]) -> pa.Table:
    """The last record of each key that has a value, as of now.

    ``key`` identifies the table in this worker. A record without a key is the row of none: it
    comes without its value.
    """
    options = SourceOptions.parse(source, streaming=False)
    cluster = KafkaCluster(options)
    names = cluster.partitions()
    ids = cluster.topic_ids(sorted({name.topic for name in names}))
    ends, begins = cluster.resolve(names, options.end), cluster.at_marks(dict.fromkeys(names, -2))
    known_ids, position, rows, table = _TOPICS.get(key, ({}, {}, {}, None))
    has_new_id = any(known_ids.get(topic, topic_id) != topic_id for topic, topic_id in ids.items())
    if has_new_id or any(position.get(name, 0) > end for name, end in ends.items()):
        position, rows, table = {}, {}, None  # the topic was deleted and made again
    starts = {name: max(position.get(name, 0), begin) for name, begin in begins.items()}
    changed = dict(rows)
    for wanted in plan_ranges(starts, ends):
        for batch in read_range(options, _READ, wanted):
            table = None
            for record in batch.to_pylist():
                _take(changed, record)
    if table is None:
        found = [last_record(each.values()) for each in changed.values()]
        kept = [each for each in found if each["value"] is not None or each["key"] is None]
        table = pa.Table.from_pylist(kept, to_arrow_schema(TABLE_RECORDS, timezone="UTC"))
    _TOPICS[key] = ({**known_ids, **ids}, ends, changed, table)
    return table


def _take(rows: _Rows, record: dict[str, Any]) -> None:
    """Put a record in the place of the one before in its partition.

    The dictionaries of ``rows`` are not changed."""
    if record["key"] is None:
        rows[record["topic"], record["partition"], record["offset"]] = {0: {**record, "value": None}}
        return
    others = {at: each for at, each in rows.get(record["key"], {}).items() if at != record["partition"]}
    if record["value"] is None and not others:
        # Nothing of the key is left; a record of it in another partition can only be a newer one.
        rows.pop(record["key"], None)
    else:
        rows[record["key"]] = {**others, record["partition"]: record}

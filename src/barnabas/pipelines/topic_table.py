"""A topic as a table: the last value of each key. A record without a value deletes its key, as log compaction reads it.

A worker keeps the table and reads only what came since. It reads the topic again from its beginning when the topic was deleted and
made again: its id is another, or, on brokers without topic ids, it ends before the position that was reached.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.pipelines.kafka import KafkaCluster
from barnabas.pipelines.offsets import Offsets, plan_ranges
from barnabas.pipelines.options import SourceOptions
from barnabas.pipelines.source import SCHEMA, read_range

__all__ = ["TABLE_RECORDS", "read_topic_table"]

TABLE_RECORDS = StructType(
    [field for field in SCHEMA.fields if field.name in ("key", "value", "topic", "partition", "offset")]
)
_TOPICS: dict[str, tuple[dict[str, str], Offsets, dict[Any, dict[str, Any]], pa.Table]] = {}
"""For each topic that this worker has read: its id, how far, the record of each key, and these as a table.

Of a record without a key only its position is kept, by which it is counted as one that does not fit.
"""


def read_topic_table(key: str, source: dict[str, str]) -> pa.Table:
    """The last record of each key that has a value, as of now; ``key`` identifies the table in this worker.

    A record without a key is the row of none: it comes without its value.
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
        for batch in read_range(options, TABLE_RECORDS, wanted):
            table = None
            for record in batch.to_pylist():
                if record["key"] is None:
                    changed[record["topic"], record["partition"], record["offset"]] = {**record, "value": None}
                elif record["value"] is None:
                    changed.pop(record["key"], None)
                else:
                    changed[record["key"]] = record
    if table is None:
        table = pa.Table.from_pylist(list(changed.values()), to_arrow_schema(TABLE_RECORDS, timezone="UTC"))
    _TOPICS[key] = ({**known_ids, **ids}, ends, changed, table)
    return table

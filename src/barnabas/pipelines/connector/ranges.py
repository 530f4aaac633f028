"""Which reader reads a range in a worker of Spark: our own one (`range_reader`), or librdkafka
(`record_reader`) where it cannot.

Both are kept for the worker's next range, which saves their set-up.
"""

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.cluster.offsets import Range
from barnabas.pipelines.cluster.options import SourceOptions
from barnabas.pipelines.connector.lost_records import report_lost
from barnabas.pipelines.connector.range_progress import Lost
from barnabas.pipelines.connector.range_reader import RangeReader, UnreadableRangeError, can_read
from barnabas.pipelines.connector.record_reader import KeptByProcess, read_by_record
from barnabas.pipelines.errors import DataLossError

__all__ = ["read_arrow"]

logger = logging.getLogger(__name__)
_readers = KeptByProcess[RangeReader]()


def read_arrow(options: SourceOptions, schema: pa.Schema, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches with these columns of the source.

    Our own reader takes whole batches apart in columns. librdkafka, with an object for each record,
    reads where more than plain TCP, TLS and SASL are asked for, and what our own reader cannot
    read: what has a format of Kafka before 0.11, or comes in answers that bring it no further. If
    librdkafka fails, too, the error has both reasons.
    """
    if not wanted.size:
        return

    def lost(records: Lost) -> None:
        report_lost(options, wanted.topic, wanted.partition, records)

    if not can_read(options.kafka):
        yield from read_by_record(options, schema, wanted, lost)
        return
    key = (options.fail_on_data_loss, options.fetch_timeout_ms, *sorted(options.kafka.items()))
    reader = _readers.take(key) or RangeReader(options)
    try:
        yield from reader.read(wanted, schema, lost)
    except UnreadableRangeError as error:
        reader.close()
        yield from _read_rest(options, schema, wanted._replace(start=error.offset), error, lost)
        return
    except BaseException:
        reader.close()
        raise
    _readers.keep(key, reader)


def _read_rest(
    options: SourceOptions, schema: pa.Schema, rest: Range, why: UnreadableRangeError, lost: Callable[[Lost], None]
) -> Iterator[pa.RecordBatch]:
    logger.warning("%s-%d, from offset %d on: %s; librdkafka reads the rest", *rest[:3], why)
    try:
        yield from read_by_record(options, schema, rest, lost)
    except DataLossError:
        raise
    except BarnabasError as error:
        raise BarnabasError(f"{error}; before that, {why}") from error

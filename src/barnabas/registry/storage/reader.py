"""`StoreReader`: reads the registry's topic from its beginning to its end, and on.

The thread that reads hands each batch to ``deliver``, in order, and goes on when that returns. It
reads what is committed only: the writer's records are parts of transactions, which fence a writer
that does not lead any more.

A record that no registry understands is the core's to leave out. A batch that is damaged is an end:
what comes behind it may depend on it.

In Confluent's registry: `KafkaStoreReaderThread`.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.codecs import BYTES
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import ClientError, DamagedBatchError
from barnabas.registry.core.decisions import LogRecord

__all__ = ["StoreReader"]

logger = logging.getLogger(__name__)

_POLL_S = 0.1
_BATCH_RECORDS = 1000
_PAUSE_S = 0.5


Deliver = Callable[[Sequence[LogRecord], int], None]
"""Takes records, which may be none, and the offset up to which all is read."""


class StoreReader:
    """The thread that reads. ``deliver`` and ``fail`` are called on it."""

    def __init__(
        self, properties: Mapping[str, str], topic: str, deliver: Deliver, fail: Callable[[BarnabasError], None]
    ) -> None:
        self._place = TopicPartition(topic, 0)
        self._deliver = deliver
        self._fail = fail
        self._properties = {
            **properties,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",  # so that the position passes markers of transactions
            "isolation.level": "read_committed",
            "fetch.min.bytes": "1",
            # Read ahead little, for the state is what needs the memory; and go on at once when that
            # is read, not after librdkafka's second.
            "queued.min.messages": "1000",
            "queued.max.messages.kbytes": "2048",
            "fetch.queue.backoff.ms": "5",
        }
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop; returns when nothing is delivered any more."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            with Consumer(self._properties, deserializer=BYTES, key_deserializer=BYTES) as consumer:
                consumer.assign([self._place])
                while not self._is_closing.is_set():
                    self._read(consumer)
        except BarnabasError as error:
            self._fail(error)
        except Exception as error:  # a thread that ends without a word would be a registry that stands still
            logger.exception("the reader of %s failed", self._place)
            self._fail(ClientError(f"the reader of {self._place} failed: {error}"))

    def _read(self, consumer: "Consumer[bytes, bytes]") -> None:
        try:
            found = consumer.consume(_BATCH_RECORDS, _POLL_S)
        except DamagedBatchError:
            raise
        except ClientError as error:
            if not error.retriable or error.fatal:
                raise
            logger.warning("reading %s: %s", self._place, error)
            self._is_closing.wait(_PAUSE_S)
            return
        records = [LogRecord(each.offset, each.timestamp_ms or 0, each.key, each.value) for each in found]
        end = consumer.position([self._place])[self._place]
        if end is not None:
            self._deliver(records, end)

"""The input of the application ``other_languages/java/streams/Shop.java``, and its results,
computed from it in the plainest way."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import confluent_kafka

__all__ = ["INPUTS", "PARTITIONS", "Record", "ShopFeed"]

PARTITIONS = 2
INPUTS = ("text", "orders", "payments", "customers")
_WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")
_CUSTOMERS = tuple(f"customer-{number}" for number in range(8))
_SIZE_MS, _ADVANCE_MS, _GAP_MS = 10_000, 5_000, 3_000
_STEP_MS = 400
_LATER_MS = 3_600_000
_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Record:
    """An order or a payment."""

    key: str
    value: str
    timestamp_ms: int


@dataclass
class ShopFeed:
    """Lines of text, orders and payments that come in the order of their timestamps; a table of
    customers that was there before them."""

    bootstrap: str
    start_ms: int
    """The first timestamp, in ms since the epoch; a multiple of the windows' size."""
    count: int = 0
    lines: list[str] = field(default_factory=list)
    orders: list[Record] = field(default_factory=list)
    payments: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.start_ms)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        for version in ("old", "new"):
            for customer in _CUSTOMERS:
                self._send("customers", Record(customer, f"{version} {customer}", self.start_ms - _SIZE_MS))
        assert self._producer.flush(_LIMIT_S) == 0

    def add(self, count: int) -> None:
        """The next ones of each kind."""
        for number in range(self.count, self.count + count):
            self.lines.append(" ".join(self._random.choices(_WORDS, k=3)))
            at_ms = self.start_ms + number * _STEP_MS
            self.orders.append(Record(self._random.choice(_CUSTOMERS), f"order-{number}", at_ms))
            self.payments.append(Record(self._random.choice(_CUSTOMERS), f"payment-{number}", at_ms))
            self._send("text", Record(str(number), self.lines[-1], at_ms))
            self._send("orders", self.orders[-1])
            self._send("payments", self.payments[-1])
        assert self._producer.flush(_LIMIT_S) == 0
        self.count += count

    def close_windows(self) -> None:
        """An order much later in each partition: final results of the windows before it are due."""
        late_ms = self.orders[-1].timestamp_ms + _LATER_MS
        for partition in range(PARTITIONS):
            self._producer.produce("orders", "late", f"late-{partition}", partition, timestamp=late_ms)
        assert self._producer.flush(_LIMIT_S) == 0

    def _send(self, topic: str, record: Record) -> None:
        self._producer.produce(topic, record.value, record.key, timestamp=record.timestamp_ms)
        self._producer.poll(0)

    def words(self) -> Counter[str]:
        """How often each word came."""
        return Counter(word for line in self.lines for word in line.split())

    def named_orders(self) -> Counter[str]:
        """Each order with its customer's last name."""
        return Counter(f"{each.value},new {each.key}" for each in self.orders)

    def paid_orders(self) -> Counter[str]:
        """Each pair of an order and a payment of one customer, at most ten seconds apart."""
        return Counter(
            f"{order.value},{payment.value}"
            for order in self.orders
            for payment in self.payments
            if order.key == payment.key and abs(order.timestamp_ms - payment.timestamp_ms) <= _SIZE_MS
        )

    def windows(self, advance_ms: int) -> dict[str, int]:
        """Orders of each customer in windows of ten seconds, which begin every ``advance_ms``."""
        found: Counter[str] = Counter()
        for order in self.orders:
            last_ms = order.timestamp_ms - order.timestamp_ms % advance_ms
            for begin_ms in range(last_ms, order.timestamp_ms - _SIZE_MS, -advance_ms):
                found[f"{order.key}@{begin_ms}-{begin_ms + _SIZE_MS}"] += 1
        return dict(found)

    def tumbling(self) -> dict[str, int]:
        """The same, one window after the other."""
        return self.windows(_SIZE_MS)

    def hopping(self) -> dict[str, int]:
        """The same, each one half over the next one."""
        return self.windows(_ADVANCE_MS)

    def sessions(self) -> dict[str, int]:
        """Orders of each customer with at most three seconds between one and the next."""
        return {
            f"{customer}@{times[0]}-{times[-1]}": len(times)
            for customer in _CUSTOMERS
            for times in _runs([each.timestamp_ms for each in self.orders if each.key == customer])
        }


def _runs(times: list[int]) -> Iterator[list[int]]:
    """Ascending times, cut where a gap is longer than a session's."""
    if not times:
        return
    run = times[:1]
    for before, after in pairwise(times):
        if after - before > _GAP_MS:
            yield run
            run = []
        run.append(after)
    yield run

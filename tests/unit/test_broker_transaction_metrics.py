"""What a metrics page says of transactions that hang, from the producers that logs remember."""

import pytest

from barnabas.broker.monitoring.figures import _Replicas
from barnabas.log.producer_state import ProducerState


def test_the_oldest_open_transaction_counts_by_its_producers_last_record() -> None:
    """Not by the first: a producer that still writes does not hang."""
    producers = ProducerState()
    assert producers.oldest_transaction_ms is None
    producers.add_batch(7, 0, 0, 10, 11, 1000, True)
    producers.add_batch(8, 0, 0, 12, 12, 1500, True)
    producers.add_batch(7, 0, 2, 13, 13, 2000, True)
    assert producers.oldest_transaction_ms == 2000
    ended = producers.add_marker(7, 0, 0, 14, 2500, is_abort=True)
    assert ended is not None
    producers.complete(ended)
    assert producers.oldest_transaction_ms == 1500


@pytest.mark.parametrize(("last_record_ms", "is_late"), [(999, True), (1000, False), (-1, False)])
def test_a_late_transaction_is_counted_of_partitions_that_the_broker_leads(last_record_ms: int, is_late: bool) -> None:
    """As Kafka's PartitionsWithLateTransactionsCount: five minutes beyond the longest timeout."""
    found = _Replicas(late_before_ms=1000)
    producers = ProducerState()
    producers.add_batch(7, 0, 0, 10, 10, last_record_ms, True)
    found.add_producers(producers)
    assert found.late_transactions == int(is_late)

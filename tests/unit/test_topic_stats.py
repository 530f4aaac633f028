"""The counters of a broker's topics."""

import pytest

from barnabas.base.tasks import done_here
from barnabas.broker.replication import topic_stats
from barnabas.broker.replication.topic_stats import BrokerTopicStats


@pytest.mark.parametrize("slices_before", range(1, 5))
@pytest.mark.parametrize("is_made_again", [False, True])
def test_sums_do_not_fall_when_a_topic_is_deleted_between_two_slices(
    slices_before: int, *, is_made_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that falls is a restart for Prometheus, which then adds the whole of it."""
    monkeypatch.setattr(topic_stats, "_A_STEP", 1)
    stats = BrokerTopicStats()
    for topic in "abcd":
        stats.of(topic).messages_in = 1000
    stats.elsewhere.messages_in = 1
    work = stats.totals(2)
    found = None
    try:
        for _ in range(slices_before):
            next(work)
        stats.remove("c")
        if is_made_again:
            stats.of("c").messages_in = 5
        while True:
            next(work)
    except StopIteration as end:
        found = end.value
    assert found is not None
    sums, by_topic = found
    assert sums.messages_in == 4001
    assert list(by_topic) == ["a", "b"]
    assert done_here(stats.totals(2))[0].messages_in == (4006 if is_made_again else 4001)

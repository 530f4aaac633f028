"""Fetch sessions against what KIP-227 says of them."""

from random import Random

import pytest

from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.broker.replication import fetch_session_handler
from barnabas.broker.replication.fetch_session_handler import FetchSessionHandler
from barnabas.broker.replication.fetch_sessions import EVICTION_AGE_MS, FetchContext, FetchSessions, PartitionFetch
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.wire.kafka.errors import ErrorCode
from support.broker import ManualClock, ManualTimers


def wanted(topic: str, partition: int = 0, offset: int = 0) -> PartitionFetch:
    return PartitionFetch((topic, partition), ZERO_UUID, TopicPartition(topic, partition), offset, 1 << 20, -1, -1, -1)


def request(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    asked: list[PartitionFetch],
    forgotten: list[tuple[str, int]] | None = None,
    now_ms: int = 0,
    *,
    privileged: bool = False,
    uses_topic_ids: bool = False,
) -> FetchContext | ErrorCode:
    return sessions.open(
        session_id,
        epoch,
        asked,
        forgotten or [],
        now_ms,
        privileged=privileged,
        uses_topic_ids=uses_topic_ids,
    )


def opened(context: FetchContext | ErrorCode) -> FetchContext:
    assert isinstance(context, FetchContext)
    return context


def topics(context: FetchContext) -> list[str]:
    return [str(partition.key[0]) for partition in context.to_look_at()]


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(2, Random(1), Purgatory(ManualTimers(ManualClock())))


def test_epoch_zero_opens_a_session_and_the_next_request_names_changes_only(sessions: FetchSessions) -> None:
    """Partitions added, changed and forgotten are remembered."""
    first = opened(request(sessions, 0, 0, [wanted("a"), wanted("b")]))
    assert first.session_id != 0
    assert not first.incremental
    second = opened(request(sessions, first.session_id, 1, [wanted("a", offset=7), wanted("c")], [("b", 0)]))
    assert second.incremental
    assert topics(second) == ["a", "c"]
    assert [partition.fetch_offset for partition in second] == [7, 0]
    third = opened(request(sessions, first.session_id, 2, []))
    assert topics(third) == ["a", "c"]


def test_a_final_epoch_closes_the_session_and_is_served_without_one(sessions: FetchSessions) -> None:
    """Epoch -1 asks for everything it names, once."""
    first = opened(request(sessions, 0, 0, [wanted("a")]))
    last = opened(request(sessions, first.session_id, -1, [wanted("a")]))
    assert (last.session_id, last.incremental, len(sessions)) == (0, False, 0)


def test_unknown_sessions_and_wrong_epochs_are_refused(sessions: FetchSessions) -> None:
    """The client then starts over."""
    assert request(sessions, 99, 1, []) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    first = opened(request(sessions, 0, 0, [wanted("a")]))
    assert request(sessions, first.session_id, 2, []) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert request(sessions, first.session_id, 1, [], uses_topic_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_that_forgets_its_last_partition_ends(sessions: FetchSessions) -> None:
    """An empty session is not worth a slot."""
    first = opened(request(sessions, 0, 0, [wanted("a")]))
    second = opened(request(sessions, first.session_id, 1, [], [("a", 0)]))
    assert (len(second), second.session_id, len(sessions)) == (0, 0, 0)


def test_a_full_cache_gives_no_session_while_all_are_in_use(sessions: FetchSessions) -> None:
    """The client is served all the same, with session id 0."""
    for name in ("a", "b"):
        opened(request(sessions, 0, 0, [wanted(name)]))
    third = opened(request(sessions, 0, 0, [wanted("c")]))
    assert (third.session_id, topics(third)) == (0, ["c"])


def test_a_session_that_was_not_used_for_long_makes_room(sessions: FetchSessions) -> None:
    """The least recently used one goes, not the oldest."""
    old = opened(request(sessions, 0, 0, [wanted("a")]))
    stale = opened(request(sessions, 0, 0, [wanted("b")]))
    opened(request(sessions, old.session_id, 1, [], now_ms=EVICTION_AGE_MS))
    new = opened(request(sessions, 0, 0, [wanted("c")], now_ms=EVICTION_AGE_MS + 1))
    assert new.session_id != 0
    assert request(sessions, stale.session_id, 1, []) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    opened(request(sessions, old.session_id, 2, []))


def test_a_larger_session_pushes_an_older_smaller_one_out(sessions: FetchSessions) -> None:
    """A follower's session counts as larger than any consumer's."""
    now_ms = EVICTION_AGE_MS + 1
    for name in ("a", "b"):
        context = opened(request(sessions, 0, 0, [wanted(name)]))
        opened(request(sessions, context.session_id, 1, [], now_ms=now_ms))
    assert opened(request(sessions, 0, 0, [wanted("c")], now_ms=now_ms)).session_id == 0
    assert opened(request(sessions, 0, 0, [wanted("c"), wanted("d")], now_ms=now_ms)).session_id != 0
    assert opened(request(sessions, 0, 0, [wanted("e")], now_ms=now_ms, privileged=True)).session_id != 0


def bounded(max_partitions: int) -> FetchSessions:
    return FetchSessions(9, Random(1), Purgatory(ManualTimers(ManualClock())), max_partitions=max_partitions)


def several(topic: str, count: int) -> list[PartitionFetch]:
    return [wanted(topic, partition) for partition in range(count)]


def test_sessions_that_are_in_use_keep_their_partitions_and_a_new_client_gets_none() -> None:
    """What all sessions remember is bounded by partitions, too; the client is served
    all the same."""
    sessions = bounded(5)
    first = opened(request(sessions, 0, 0, several("a", 3)))
    refused = opened(request(sessions, 0, 0, several("b", 3)))
    assert (refused.session_id, len(refused), sessions.partition_count) == (0, 3, 3)
    assert opened(request(sessions, 0, 0, several("c", 2))).session_id != 0
    assert opened(request(sessions, first.session_id, 1, [])).incremental
    assert opened(request(sessions, first.session_id, 0, several("d", 1))).session_id != 0
    assert sessions.partition_count == 3


def test_as_many_old_sessions_go_as_a_larger_one_needs_and_none_if_that_is_not_enough() -> None:
    """Unused ones first, then the smallest of the others."""
    now_ms = EVICTION_AGE_MS + 1
    sessions = bounded(6)
    ids = {
        name: opened(request(sessions, 0, 0, several(name, size))).session_id
        for name, size in (("a", 1), ("b", 2), ("c", 3))
    }
    for name in ("b", "c"):
        opened(request(sessions, ids[name], 1, [], now_ms=now_ms))
    assert opened(request(sessions, 0, 0, several("d", 7), now_ms=now_ms)).session_id == 0
    assert len(sessions) == 3
    assert opened(request(sessions, 0, 0, several("d", 3), now_ms=now_ms)).session_id != 0
    assert request(sessions, ids["a"], 1, [], now_ms=now_ms) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert request(sessions, ids["b"], 2, [], now_ms=now_ms) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(request(sessions, ids["c"], 2, [], now_ms=now_ms)).incremental
    assert sessions.partition_count == 6


def test_a_follower_pushes_a_young_session_of_a_consumer_out_and_no_other_followers() -> None:
    """A consumer that opens one with very many partitions again and again must not
    keep followers without."""
    sessions = bounded(5)
    consumer = opened(request(sessions, 0, 0, several("a", 4)))
    follower = opened(request(sessions, 0, 0, several("b", 3), privileged=True))
    assert follower.session_id != 0
    assert request(sessions, consumer.session_id, 1, []) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(request(sessions, 0, 0, several("c", 4), privileged=True)).session_id == 0
    assert opened(request(sessions, 0, 0, several("d", 4))).session_id == 0


def test_a_follower_whose_session_has_no_room_to_grow_is_served_with_all_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names them in several requests, is refused once, and then asks for all at
    once, without a session."""
    monkeypatch.setattr(fetch_session_handler, "MAX_NEW_PARTITIONS", 2)
    sessions = bounded(10)
    opened(request(sessions, 0, 0, several("other", 5), privileged=True))
    handler = FetchSessionHandler()
    names = [TopicPartition("t", number) for number in range(9)]
    for name in names:
        handler.add(name, ZERO_UUID)
    served, refusals = [], 0
    for _ in range(20):
        step = handler.next()
        asked = [wanted(name.topic, name.partition) for name in step.to_send]
        context = request(sessions, step.session_id, step.epoch, asked, privileged=True)
        if isinstance(context, FetchContext):
            served.append(len(context))
            assert handler.handle_response(context.session_id, ErrorCode.NONE)
        else:
            refusals += 1
            assert not handler.handle_response(0, context)
    assert served == [2, 4, *([9] * 17)]
    assert refusals == 1


def test_a_session_that_grows_beyond_the_room_ends_and_its_client_goes_on_without_one() -> None:
    """Its partitions are no longer remembered; those of others are."""
    sessions = bounded(5)
    kept = opened(request(sessions, 0, 0, several("a", 2)))
    grows = opened(request(sessions, 0, 0, several("b", 2)))
    assert opened(request(sessions, grows.session_id, 1, several("c", 1), [("b", 0)])).incremental
    assert sessions.partition_count == 4
    assert request(sessions, grows.session_id, 2, several("d", 2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 2
    assert opened(request(sessions, 0, 0, several("d", 4))).session_id == 0
    assert opened(request(sessions, kept.session_id, 1, [])).incremental


def test_served_partitions_move_to_the_end(sessions: FetchSessions) -> None:
    """No partition starves under a byte limit."""
    first = opened(request(sessions, 0, 0, [wanted("a"), wanted("b"), wanted("c")]))
    first.served([("a", 0)])
    assert topics(opened(request(sessions, first.session_id, 1, []))) == ["b", "c", "a"]


def test_a_change_is_named_once_and_errors_until_they_are_over() -> None:
    """An incremental answer leaves out what the client knows."""

    def is_named(partition: PartitionFetch, *, size: int = 0, high_watermark: int = 5, error: bool = False) -> bool:
        return partition.must_be_named(
            size_bytes=size, high_watermark=high_watermark, log_start_offset=0, error=error, is_urgent=False
        )

    partition = wanted("a")
    assert is_named(partition)
    assert not is_named(partition)
    assert is_named(partition, size=10)
    assert is_named(partition, high_watermark=6)
    assert is_named(partition, high_watermark=-1, error=True)
    assert is_named(partition, high_watermark=-1, error=True)
    assert is_named(partition, high_watermark=6)
    assert not is_named(partition, high_watermark=6)

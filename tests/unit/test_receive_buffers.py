"""The buffers of large frames are used again, but never while somebody looks at them."""

import asyncio
from collections.abc import Callable

import pytest

from barnabas.net import receive_buffers
from barnabas.net.memory_budget import Pile, PileKind
from barnabas.net.receive_buffers import BUFFER_BYTES, MOST_BUFFERS, ReceiveBuffers
from barnabas.net.waiting_bytes import WaitingBytes

MIB = 1024 * 1024
LIMIT = 128 * MIB


def run(test: Callable[[ReceiveBuffers, WaitingBytes], None], limit_bytes: int = LIMIT) -> None:
    async def with_loop() -> None:
        waiting = WaitingBytes(limit_bytes, "a limit")
        test(ReceiveBuffers(waiting), waiting)

    asyncio.run(with_loop())


def taken(buffers: ReceiveBuffers, size_bytes: int = BUFFER_BYTES) -> memoryview:
    view = buffers.take(size_bytes)
    assert view is not None
    return view


def test_a_buffer_without_views_is_lent_again() -> None:
    """The second frame comes into the memory of the first."""

    def test(buffers: ReceiveBuffers, waiting: WaitingBytes) -> None:
        taken(buffers, 100)[:5] = b"first"
        assert taken(buffers, 5) == b"first"
        assert buffers.held_bytes == BUFFER_BYTES

    run(test)


def test_a_buffer_is_not_lent_while_a_part_of_it_is_looked_at() -> None:
    """A slice of a slice of the frame is enough, and its bytes stay as they are."""

    def test(buffers: ReceiveBuffers, waiting: WaitingBytes) -> None:
        frame = taken(buffers, 1000)
        frame[500:505] = b"kept!"
        part = frame[400:600][100:105]
        del frame
        for _ in range(3):
            taken(buffers, 1000)[:] = bytes(1000)
        assert part == b"kept!"
        assert buffers.held_bytes == 2 * BUFFER_BYTES

    run(test)


def test_a_frame_has_the_size_that_was_asked_for() -> None:
    """The largest fits exactly; a larger one gets no buffer."""

    def test(buffers: ReceiveBuffers, waiting: WaitingBytes) -> None:
        assert len(taken(buffers, BUFFER_BYTES)) == BUFFER_BYTES
        assert len(taken(buffers, 70_000)) == 70_000
        assert buffers.take(BUFFER_BYTES + 1) is None

    run(test)


def test_there_are_only_so_many_buffers() -> None:
    """When all are looked at there is none, until one of them is let go."""

    def test(buffers: ReceiveBuffers, waiting: WaitingBytes) -> None:
        views = [taken(buffers) for _ in range(MOST_BUFFERS)]
        assert buffers.take(70_000) is None
        views.pop()
        assert buffers.take(70_000) is not None
        assert buffers.held_bytes == MOST_BUFFERS * BUFFER_BYTES

    run(test)


@pytest.mark.parametrize(("limit_bytes", "most"), [(8 * BUFFER_BYTES - 1, 0), (16 * BUFFER_BYTES, 2)])
def test_a_low_limit_makes_fewer_buffers(limit_bytes: int, most: int) -> None:
    """All of them take an eighth of what may wait at most."""

    def test(buffers: ReceiveBuffers, waiting: WaitingBytes) -> None:
        views = [buffers.take(70_000) for _ in range(MOST_BUFFERS)]
        assert [view is not None for view in views] == [True] * most + [False] * (MOST_BUFFERS - most)

    run(test, limit_bytes)


def test_the_buffers_count_as_bytes_that_wait() -> None:
    """Their whole memory counts, lent or not, until it is given up."""

    def test(buffers: ReceiveBuffers, waiting: WaitingBytes) -> None:
        view = taken(buffers, 70_000)
        taken(buffers, 70_000)
        assert waiting.budget.held_bytes == 2 * BUFFER_BYTES
        del view
        assert waiting.budget.held_bytes == 2 * BUFFER_BYTES

    run(test)


def test_where_memory_is_short_free_buffers_are_given_up_and_none_is_lent() -> None:
    """One that is looked at stays, and counts."""

    def test(buffers: ReceiveBuffers, waiting: WaitingBytes) -> None:
        lent = taken(buffers)
        taken(buffers)
        pile = Pile(waiting, PileKind.SERVICE)
        waiting.hold(pile, LIMIT // 2)
        assert buffers.take(70_000) is None
        assert buffers.held_bytes == BUFFER_BYTES == waiting.budget.held_bytes - LIMIT // 2
        waiting.hold(pile, 0)
        del lent
        assert buffers.take(70_000) is not None
        assert buffers.held_bytes == BUFFER_BYTES

    run(test)


def test_buffers_that_nobody_needs_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free ones first, and one that is looked at when that is over."""
    monkeypatch.setattr(receive_buffers, "BUFFER_IDLE_S", 0.01)

    async def test() -> None:
        async def until(held_bytes: int) -> None:
            async with asyncio.timeout(60):
                while buffers.held_bytes != held_bytes:  # noqa: ASYNC110  # what is watched has no event
                    await asyncio.sleep(0.001)

        waiting = WaitingBytes(LIMIT, "a limit")
        buffers = ReceiveBuffers(waiting)
        lent = taken(buffers)
        taken(buffers)
        await until(BUFFER_BYTES)
        assert len(lent) == BUFFER_BYTES
        del lent
        await until(0)
        assert waiting.budget.held_bytes == 0

    asyncio.run(test())

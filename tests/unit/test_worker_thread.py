"""The thread for short work: order, errors, and the end."""

import asyncio
import threading

import pytest

from barnabas.base.threads import AtMost, WorkerThread


async def outcomes(count: int) -> tuple[list[int], list[tuple[int, BaseException | None]], set[int]]:
    """What a thread does with this many pieces of work, every third of which fails: done,
    reported, and in which threads."""
    loop = asyncio.get_running_loop()
    done: list[int] = []
    reported: list[tuple[int, BaseException | None]] = []
    threads: set[int] = set()
    is_over = loop.create_future()
    worker = WorkerThread("worker", loop.call_soon_threadsafe)

    def work(number: int) -> None:
        done.append(number)
        threads.add(threading.get_ident())
        if not number % 3:
            raise OSError(number)

    def report(number: int, error: BaseException | None) -> None:
        assert threading.get_ident() not in threads
        reported.append((number, error))
        if len(reported) == count:
            is_over.set_result(None)

    for number in range(count):
        worker(lambda number=number: work(number), lambda error, number=number: report(number, error))
    async with asyncio.timeout(60):
        await is_over
    worker.close()
    return done, reported, threads


def test_work_is_done_in_order_and_its_outcome_known_on_the_loop() -> None:
    """Errors are outcomes; the thread goes on."""
    done, reported, threads = asyncio.run(outcomes(10))
    assert done == [number for number, _ in reported] == list(range(10))
    assert [number for number, error in reported if error is not None] == [0, 3, 6, 9]
    assert all(isinstance(error, OSError) for _, error in reported if error is not None)
    assert len(threads) == 1


def test_closing_waits_for_what_was_given() -> None:
    """Also where nothing listens for the outcome any more."""

    def closed(*_: object) -> None:
        raise RuntimeError("the loop is closed")

    done = threading.Event()
    worker = WorkerThread("worker", closed)
    worker(done.set, lambda _: pytest.fail("there is no loop"))
    worker.close()
    assert done.is_set()


def test_no_more_threads_than_may_do_what_takes_much_memory() -> None:
    """Two meet, three never do; what one of them raises gives its turn back."""
    turns = AtMost(2)
    met: list[bool] = []

    def meet(barrier: threading.Barrier) -> bool:
        try:
            barrier.wait(0.3)
        except threading.BrokenBarrierError:
            return False
        return True

    for count in (2, 3):
        barrier = threading.Barrier(count)
        threads = [
            threading.Thread(target=lambda: met.append(turns.run(lambda: meet(barrier))))  # noqa: B023
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert met == [True, True, False, False, False]
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            turns.run(lambda: 1 // 0)
    assert turns.run(lambda: 7) == 7

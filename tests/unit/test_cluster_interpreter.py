"""The interpreter of steps on our coordination server: outcomes, errors raised in the
generator, terms of term."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.task_futures import runner_here
from barnabas.broker.cluster.service import Interpreter
from barnabas.broker.cluster.steps import (
    Ask,
    Check,
    Children,
    Committed,
    ControllerMovedError,
    Create,
    CreateOwn,
    Delete,
    Read,
    ReadAllowed,
    Refused,
    Send,
    SetData,
    Steps,
    Transact,
    Wait,
    Write,
    WriteResult,
    WriteUnfenced,
)
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import set_acl
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode, Perms
from barnabas.wire.jute.records import ACL, Id
from support.coordination_in_process import running_server, session
from support.performing import NoBrokers, interpreter


def run(tmp_path: Path, test: Callable[[Interpreter, CoordinationClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_server(tmp_path) as server, session(f"127.0.0.1:{server.port}") as client:
            await test(interpreter(client), client)

    asyncio.run(main())


def one(step: Any) -> Steps[Any]:
    """A generator of one step, whose outcome is the result."""
    return (yield step)


class Term:
    """A term as controller that may be over."""

    def __init__(self, epoch_version: int) -> None:
        self.epoch_version = epoch_version
        self.sent: list[tuple[int, Any]] = []
        self.is_over = False

    def send(self, requests: Sequence[tuple[int, Any]]) -> None:
        self.sent += requests

    def check(self) -> None:
        if self.is_over:
            raise ControllerMovedError("over")


def test_reads_and_writes_come_back_as_values(tmp_path: Path) -> None:
    """An absent znode is None or has no children; each write says how it ended, and
    a failed one says why."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        written = await interpreter.perform(
            one(
                WriteUnfenced(
                    [Create("/a", b"1"), Create("/a"), SetData("/a", b"2", 0), SetData("/a", b"3", 0), Delete("/b")]
                )
            )
        )
        assert [(w.result, w.version) for w in written] == [
            (WriteResult.DONE, 0),
            (WriteResult.EXISTS, -1),
            (WriteResult.DONE, 1),
            (WriteResult.BAD_VERSION, -1),
            (WriteResult.ABSENT, -1),
        ]
        with pytest.raises(KeeperError) as refused:
            written[3].or_raise(WriteResult.EXISTS)
        assert refused.value.code is Keeper.BAD_VERSION
        znode, absent = await interpreter.perform(one(Read(["/a", "/b"])))
        assert (znode.data, znode.version, absent) == (b"2", 1, None)
        assert await interpreter.perform(one(Children("/b"))) == []
        assert await interpreter.perform(one(Read([]))) == []

    run(tmp_path, test)


def test_an_ephemeral_is_known_as_ones_own(tmp_path: Path) -> None:
    """The election depends on it: a znode of this session was made by a claim whose
    answer was lost."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        await interpreter.perform(one(WriteUnfenced([Create("/mine", b"", CreateMode.EPHEMERAL), Create("/all")])))
        mine, everyones = await interpreter.perform(one(Read(["/mine", "/all"])))
        assert (mine.is_own_ephemeral, everyones.is_own_ephemeral) == (True, False)

    run(tmp_path, test)


def test_a_znode_that_may_not_be_read_stands_as_an_error_among_the_others(tmp_path: Path) -> None:
    """Read raises it; ReadAllowed returns it in its place."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        await interpreter.perform(one(WriteUnfenced([Create("/a", b"1"), Create("/secret")])))
        await client.batch([set_acl("/secret", [ACL(Perms.WRITE, Id("world", "anyone"))])])
        with pytest.raises(KeeperError):
            await interpreter.perform(one(Read(["/a", "/secret"])))
        readable, secret, absent = await interpreter.perform(one(ReadAllowed(["/a", "/secret", "/none"])))
        assert (readable.data, absent) == (b"1", None)
        assert isinstance(secret, KeeperError)
        assert secret.code is Keeper.NO_AUTH

    run(tmp_path, test)


def test_an_own_ephemeral_is_made_again_without_harm_and_anothers_stays(tmp_path: Path) -> None:
    """The czxid is that of this session's znode; a persistent one, or another
    session's, is in the way."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        await interpreter.perform(one(WriteUnfenced([Create("/taken")])))
        czxid = await interpreter.perform(one(CreateOwn("/mine", b"x")))
        (znode,) = await interpreter.perform(one(Read(["/mine"])))
        assert (znode.czxid, znode.data, znode.ephemeral_owner) == (czxid, b"x", client.session_id)
        assert await interpreter.perform(one(CreateOwn("/mine", b"x"))) == czxid
        assert await interpreter.perform(one(CreateOwn("/taken", b"x"))) is None

    run(tmp_path, test)


def test_a_transaction_names_the_op_that_could_not_be_done(tmp_path: Path) -> None:
    """Nothing of it is done; the transactions beside it are."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        groups = [[Create("/a"), SetData("/a", b"x", 0)], [Create("/b"), Check("/a", 7)]]
        done, refused = await interpreter.perform(one(Transact(groups)))
        assert done == Committed([0, 1])
        assert isinstance(refused, Refused)
        assert (refused.op, refused.error.code) == (1, Keeper.BAD_VERSION)
        assert await client.exists("/b") is None

    run(tmp_path, test)


def test_watches_are_left_where_the_caller_wants_them(tmp_path: Path) -> None:
    """Also on what is not there yet, if the step says so."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        fired: asyncio.Queue[str] = asyncio.Queue()

        def watch_for(path: str) -> Any:
            return (lambda event: fired.put_nowait(event.path)) if path != "/unwatched" else None

        await interpreter.perform(one(Read(["/later", "/unwatched"], watch_absent=True)), watch_for=watch_for)
        await client.create("/unwatched", b"")
        await client.create("/later", b"")
        assert await asyncio.wait_for(fired.get(), 10) == "/later"
        assert fired.empty()

    run(tmp_path, test)


def test_an_error_is_raised_in_the_generator_which_may_go_on(tmp_path: Path) -> None:
    """What a broker or another part refuses is an exception at the yield."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        def asking() -> Steps[str]:
            try:
                yield Ask(7, "anything")
            except ConnectionError as error:
                return str(error)
            return "answered"

        assert await interpreter.perform(asking()) == "There is no broker 7"
        with pytest.raises(ConnectionError):
            await interpreter.perform(one(Ask(8, "anything")))
        assert await interpreter.perform(one(Wait(lambda done: done("result", None)))) == "result"
        with pytest.raises(ValueError, match="refused"):
            await interpreter.perform(one(Wait(lambda done: done(None, ValueError("refused")))))

    run(tmp_path, test)


def test_steps_that_are_cancelled_are_closed(tmp_path: Path) -> None:
    """What the generator cleans up is cleaned up when the broker stops."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        ended: list[str] = []

        def waiting() -> Steps[None]:
            try:
                yield Wait(lambda done: None)
            finally:
                ended.append("closed")

        task = asyncio.ensure_future(interpreter.perform(waiting()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["closed"]

    run(tmp_path, test)


@pytest.mark.parametrize("step", [Write([Create("/a")]), Send([(1, "request")])])
def test_steps_of_the_controller_need_a_term_of_office(tmp_path: Path, step: Any) -> None:
    """No other part may write under the fence or command brokers."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        with pytest.raises(TypeError, match="active controller"):
            await interpreter.perform(one(step))
        assert await client.exists("/a") is None

    run(tmp_path, test)


def test_fenced_writes_happen_under_the_epoch_of_the_term_only(tmp_path: Path) -> None:
    """Of many ops each ends for itself; after another election none happens."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        await client.create(CONTROLLER_EPOCH, b"1")
        term = Term(0)
        ops = [Create(f"/n{n}") for n in range(200)] + [Create("/n0"), Create("/none/child"), SetData("/n1", b"x", 0)]
        written = await interpreter.perform(one(Write(ops)), term=term)
        assert [w.result for w in written[:200]] == [WriteResult.DONE] * 200
        assert [w.result for w in written[200:]] == [WriteResult.EXISTS, WriteResult.ABSENT, WriteResult.DONE]
        assert written[-1].version == 1
        await interpreter.perform(one(Send([(1, "request")])), term=term)
        assert term.sent == [(1, "request")]
        await client.set_data(CONTROLLER_EPOCH, b"2")
        with pytest.raises(ControllerMovedError):
            await interpreter.perform(one(Write([Create("/late")])), term=term)
        assert await client.exists("/late") is None

    run(tmp_path, test)


def test_a_decision_ends_when_its_term_is_over(tmp_path: Path) -> None:
    """After each step: what was decided from a context of the past must not be written or sent."""

    async def test(interpreter: Interpreter, client: CoordinationClient) -> None:
        term = Term(0)
        term.is_over = True

        def deciding() -> Steps[None]:
            yield Read(["/a"])
            yield Send([(1, "request")])

        with pytest.raises(ControllerMovedError):
            await interpreter.perform(deciding(), term=term)
        assert term.sent == []

    run(tmp_path, test)


class OneStepASlice(SystemClock):
    """A clock by which each step takes the whole slice."""

    def time_slice(self) -> Callable[[], bool]:
        return lambda: True


class SpentByHand(SystemClock):
    """A clock whose slice is over when the test says so."""

    def __init__(self) -> None:
        self.spend: Callable[[], None] = lambda: None

    def time_slice(self) -> Callable[[], bool]:
        spent: list[bool] = []
        self.spend = lambda: spent.append(True)
        return lambda: bool(spent)


def test_generators_at_work_at_once_share_one_slice_in_each_turn_of_the_loop(tmp_path: Path) -> None:
    """However many there are, others wait for one slice; the generators go on in order, also
    where some are cancelled."""

    async def test(_: Interpreter, client: CoordinationClient) -> None:
        turns = 0
        began: dict[int, list[int]] = {number: [] for number in range(10)}
        is_over = False

        def count() -> None:
            nonlocal turns
            turns += 1
            if not is_over:
                asyncio.get_running_loop().call_soon(count)

        def steps(number: int) -> Steps[int]:
            for _ in range(5):
                began[number].append(turns)
                if number == 4:
                    tasks[3].cancel()
                yield None
            return number

        shared = Interpreter(client, NoBrokers(), asyncio.ensure_future, runner_here(OneStepASlice()))
        asyncio.get_running_loop().call_soon(count)
        tasks = [asyncio.ensure_future(shared.perform(steps(number))) for number in range(10)]
        assert await asyncio.gather(*(task for number, task in enumerate(tasks) if number != 3)) == [
            0,
            1,
            2,
            *range(4, 10),
        ]
        is_over = True
        all_turns = sorted(turn for each in began.values() for turn in each)
        most = max(all_turns.count(turn) for turn in all_turns)
        assert most <= 2, "more than one that begins and one that goes on took steps in one turn"

    run(tmp_path, test)


def test_a_generator_whose_turn_comes_is_not_overtaken(tmp_path: Path) -> None:
    """Otherwise the later of two reads could be applied first, and what the earlier
    one read would stay."""

    async def test(_: Interpreter, client: CoordinationClient) -> None:
        log: list[str] = []

        def steps(name: str) -> Steps[None]:
            yield Wait(lambda done: replies.update({name: done}))
            log.append(name)
            if name == "busy":
                clock.spend()

        clock = SpentByHand()
        replies: dict[str, Callable[[Any, Exception | None], None]] = {}
        shared = Interpreter(client, NoBrokers(), asyncio.ensure_future, runner_here(clock))
        loop = asyncio.get_running_loop()
        for gap in range(4):  # turns of the loop between the second reply and the third
            log.clear()
            replies.clear()
            tasks = [asyncio.ensure_future(shared.perform(steps(name))) for name in ("busy", "earlier", "later")]
            await _until(lambda: len(replies) == 3)
            replies["busy"](None, None)
            replies["earlier"](None, None)
            for _ in range(gap):
                await asyncio.sleep(0)
            loop.call_soon(replies["later"], None, None)
            await asyncio.gather(*tasks)
            assert log == ["busy", "earlier", "later"]

    run(tmp_path, test)


async def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never was")

"""Kills of the transaction coordinator in the middle of a commit or an abort.

The moment is that of the answer to EndTxn. The outcome, PREPARE_COMMIT or PREPARE_ABORT, is then in
the log of ``__transaction_state`` and on every in-sync replica of it; no partition has its marker,
COMPLETE_COMMIT or COMPLETE_ABORT is not written, and the client has no answer. So another
coordinator must complete the transaction, and the client must ask it. The moment does not depend on
time: `CoordinatorKills` wraps a broker's handler of EndTxn and sees each answer before it leaves.
It does not matter which client asks, or how it connects.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from barnabas.base.errors import BarnabasError
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.end_txn import EndTxnRequest

if TYPE_CHECKING:
    from barnabas.broker.server import BrokerServer

__all__ = ["CoordinatorKill", "CoordinatorKills", "Outcome", "check_successor", "killer"]

Outcome = Literal["commit", "abort"]


class CoordinatorKill:
    """One coordinator that is killed, at the first moment that fits."""

    def __init__(self, transactional_id: str, during: Outcome, strike: Callable[[int], bool]) -> None:
        """``strike`` is called with the broker's id, on its loop, and returns whether the broker is
        killed. If so, it must write no marker from then on.

        Raises `BarnabasError` if ``during`` is neither "commit" nor "abort".
        """
        if during not in ("commit", "abort"):
            raise BarnabasError(f"during={during!r}: a transaction ends in 'commit' or 'abort'")
        self.transactional_id = transactional_id
        self.during = during
        self.broker_id: int | None = None
        """The broker that was killed; None until then."""
        self._strike = strike

    @property
    def is_done(self) -> bool:
        """Whether the moment has come."""
        return self.broker_id is not None

    def waits_for(self, request: EndTxnRequest) -> bool:
        """Whether this request may bring the moment."""
        return (
            not self.is_done
            and request.transactional_id == self.transactional_id
            and request.committed == (self.during == "commit")
        )

    def strike(self, broker_id: int) -> bool:
        """The moment has come, at this broker; returns whether the broker is killed."""
        self.broker_id = broker_id
        return self._strike(broker_id)

    def check(self) -> None:
        """Raises `BarnabasError` if the moment has not come."""
        if not self.is_done:
            raise BarnabasError(
                f"no coordinator was killed: no {self.during} of {self.transactional_id} was decided, "
                "of a transaction with records or offsets"
            )


class CoordinatorKills:
    """The kills that a cluster is waiting for."""

    def __init__(self) -> None:
        self._waiting: list[CoordinatorKill] = []

    def watch(self, broker: "BrokerServer") -> None:
        """Wrap the handler of EndTxn of a broker that has its components.

        Called once after each start of a broker."""
        dispatcher = broker.components.dispatcher
        handler = dispatcher.handlers[ApiKey.END_TXN]
        watched = replace(handler, handle=partial(self._handle, broker.broker_id, handler.handle))
        dispatcher.handlers = {**dispatcher.handlers, ApiKey.END_TXN: watched}

    def expect(self, kills: Iterable[CoordinatorKill]) -> None:
        """Wait for these from now on, and for no others."""
        self._waiting = list(kills)

    @contextlib.contextmanager
    def waiting(self, kill: CoordinatorKill) -> Iterator[CoordinatorKill]:
        """Kill a coordinator in this block. Raises `BarnabasError` at its end if there was none."""
        self._waiting = [*self._waiting, kill]
        try:
            yield kill
        finally:
            self._waiting = [each for each in self._waiting if each is not kill]
        kill.check()

    def _handle(self, broker_id: int, handle: Callable[[Request], None], request: Request) -> None:
        kill = next((each for each in self._waiting if each.waits_for(request.message)), None)
        if kill is None:
            handle(request)
            return

        def answer(_: Request, response: Any, code: ErrorCode | None) -> None:
            if code is not None:
                request.fail(code)
            elif response.error_code or kill.is_done or not kill.strike(broker_id):
                request.reply(response)

        handle(
            Request(
                request.api_key,
                request.version,
                request.correlation_id,
                request.client_id,
                request.message,
                request.client,
                request.received_ms,
                answer,
            )
        )


class Killable(Protocol):
    """A cluster whose brokers can be killed from any thread."""

    def kill(self, server: int | str) -> None: ...

    def start_broker(self, broker_id: int) -> None: ...


def check_successor(brokers: int, *, restart: bool) -> None:
    """Raises `BarnabasError` if no broker can complete what a killed coordinator has begun."""
    if brokers == 1 and not restart:
        raise BarnabasError("no other broker can take over: use a cluster with brokers=3, or restart=True")


@contextlib.contextmanager
def killer(cluster: Killable, brokers: int, *, restart: bool) -> Iterator[Callable[[int], None]]:
    """Kill brokers on another thread, in the order of the calls; with ``restart`` start them again.

    The end of the block waits for that, and raises what failed. Raises `BarnabasError` at once if
    no broker could take over.
    """
    check_successor(brokers, restart=restart)

    def end(broker_id: int) -> None:
        cluster.kill(broker_id)
        if restart:
            cluster.start_broker(broker_id)

    ended: list[Future[None]] = []
    with ThreadPoolExecutor(1, "barnabas-killer") as pool:
        yield lambda broker_id: ended.append(pool.submit(end, broker_id))
    for each in ended:
        each.result()

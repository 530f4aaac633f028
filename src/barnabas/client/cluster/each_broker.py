"""Asking several brokers at the same time, so that one that does not answer costs
the others nothing.

Each broker has a thread with a connection of its own. A broker without an answer by the
deadline, or whose connection is refused, is noted in `AdminConnection.unreachable` and not asked
again until the next round. An answer that the protocol does not allow is raised: what the other
brokers say may be as wrong.

In Kafka: the calls of `KafkaAdminClient`, which are all under way at once.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from barnabas.client.cluster.admin_connection import ROUTING_ERRORS, AdminConnection
from barnabas.client.errors import ClientError, ConnectError, ProtocolError, RefusedError

__all__ = ["ask_each", "ask_in_part", "raise_first", "reached"]

T = TypeVar("T")
Key = TypeVar("Key")

_MAX_THREADS = 64


def ask_each(
    connection: AdminConnection,
    broker_ids: Iterable[int],
    ask: Callable[[AdminConnection, int], T],
    *,
    is_last: bool = False,
) -> dict[int, T | ClientError]:
    """What ``ask(connection, broker_id)`` returns for each broker, or its error.

    In the order of the ids. ``ask`` runs in a thread, with a connection that it may use freely. It
    may use a part of the deadline, and all of it if it ``is_last``: nothing else is asked after it.
    """
    end = connection.deadline
    if end is not None and not is_last:
        end = end.patience()
    wanted = list(dict.fromkeys(broker_ids))
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    outcomes: queue.SimpleQueue[tuple[int, T | Exception]] = queue.SimpleQueue()
    found: dict[int, T | ClientError] = {}
    branches = {}
    asked = [broker_id for broker_id in wanted if broker_id not in connection.unreachable]
    for broker_id in asked:
        branches[broker_id] = connection.branch(broker_id, end)
        left.put(broker_id)

    def work() -> None:
        while True:
            try:
                broker_id = left.get_nowait()
            except queue.Empty:
                return
            outcome: T | Exception
            try:
                outcome = ask(branches[broker_id], broker_id)
            except Exception as error:  # raised or returned by the thread that waits
                outcome = error
            outcomes.put((broker_id, outcome))

    for _ in range(min(len(asked), _MAX_THREADS)):
        threading.Thread(target=work, name="barnabas-ask", daemon=True).start()
    for _ in asked:
        broker_id, outcome = outcomes.get()  # each ends by its connection's timeouts
        if isinstance(outcome, ProtocolError) or (
            isinstance(outcome, Exception) and not isinstance(outcome, ClientError)
        ):
            raise outcome
        found[broker_id] = outcome
        if connection.deadline is not None and isinstance(outcome, ConnectError):
            connection.note_unreachable(broker_id, outcome)
    for broker_id in wanted:
        if broker_id not in found:
            found[broker_id] = connection.unreachable[broker_id]
    return {broker_id: found[broker_id] for broker_id in wanted}


def reached(outcomes: Mapping[int, T | ClientError]) -> dict[int, T]:
    """What the brokers answered that did.

    Raises what one refused, and an error where none answered."""
    found: dict[int, T] = {}
    for broker_id, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            if not isinstance(outcome, ConnectError):
                raise outcome
        else:
            found[broker_id] = outcome
    for outcome in outcomes.values():
        if not found and isinstance(outcome, ClientError):
            raise outcome
    return found


def raise_first(outcomes: Mapping[Key, T | ClientError]) -> dict[Key, T]:
    """All answers; raises the first error among them: an answer in part is none."""
    found: dict[Key, T] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            raise outcome
        found[key] = outcome
    return found


def ask_in_part(connection: AdminConnection, ask: Callable[[AdminConnection], T]) -> T | ClientError:
    """What ``ask(connection)`` returns, or why there is no answer at present.

    It uses a part of the deadline only. For a part of a command's answer that may be missing.
    What is refused is raised.
    """
    end = connection.deadline
    try:
        return ask(connection if end is None else connection.with_deadline(end.patience()))
    except ProtocolError:
        raise
    except ConnectError as error:
        return error
    except RefusedError as error:
        if error.code not in ROUTING_ERRORS:
            raise
        return error

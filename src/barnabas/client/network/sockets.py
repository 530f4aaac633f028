"""The socket under a connection to a broker: name resolution, TCP, and reading and
writing that end in time.

A timeout of a socket counts for one call: a server that sends a byte now and then keeps its reader
for ever. Here each step ends at a `Deadline`, however many calls it needs. The system's resolver
takes no timeout, so it works in a thread.

In Kafka: `ClientUtils.resolve`, `Selector.connect`.
"""

import queue
import socket
import threading
from typing import Any

from barnabas.client.errors import ConnectError, UnknownHostError
from barnabas.client.network.deadline import Deadline

__all__ = ["no_answer", "open_broker_socket", "open_socket", "receive_all", "receive_exactly", "send_all"]

_PIECE_BYTES = 1024 * 1024
_SHORTEST_S = 0.001


def open_socket(address: tuple[str, int], end: Deadline) -> socket.socket:
    """A TCP connection, to the first of the host's addresses that accepts one.

    Raises `OSError`: TimeoutError at the end, `socket.gaierror` for a name that is unknown or none.
    """
    found = _resolve(address, end)
    problem: OSError | None = None
    for number, (family, kind, protocol, _, place) in enumerate(found):
        # An address that does not answer leaves their share of the time to the others.
        try:
            return _connected(socket.socket(family, kind, protocol), place, end.share(1 / (len(found) - number)))
        except OSError as error:
            problem = error
    raise problem or OSError("it has no address")


def open_broker_socket(address: tuple[str, int], name: str, end: Deadline) -> socket.socket:
    """The same to a broker. Raises `ConnectError`, in which ``name`` is the broker's."""
    try:
        return open_socket(address, end)
    except ConnectionRefusedError:
        raise ConnectError(f"{name} refused the connection: is a broker running there?") from None
    except socket.gaierror:
        raise UnknownHostError(f"{name}: there is no host of this name") from None
    except TimeoutError:
        raise no_answer(name, end) from None
    except OSError as error:
        raise ConnectError(f"{name} cannot be reached: {error.strerror or error}") from None


def no_answer(name: str, end: Deadline) -> ConnectError:
    """The error of a broker that was waited for, as long as there was time."""
    if end.length_s < _SHORTEST_S:
        return ConnectError(f"{name} was not asked: the deadline had passed")
    return ConnectError(f"{name} did not answer within {end}")


def _connected(opened: socket.socket, place: Any, end: Deadline) -> socket.socket:
    try:
        opened.settimeout(_left_s(end))
        opened.connect(place)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        opened.close()
        raise
    return opened


def _resolve(address: tuple[str, int], end: Deadline) -> list[Any]:
    host, port = address
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        pass  # it is a name
    outcomes: queue.Queue[list[Any] | Exception] = queue.Queue()

    def look_up() -> None:
        try:
            outcomes.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:  # an empty label, for one
            outcomes.put(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        except Exception as error:  # raised by the thread that waits
            outcomes.put(error)

    threading.Thread(target=look_up, name="barnabas-resolver", daemon=True).start()
    try:
        outcome = outcomes.get(timeout=_left_s(end))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def send_all(opened: socket.socket, data: bytes | bytearray | memoryview, end: Deadline) -> None:
    """Send all of it. Raises TimeoutError at the end, and other `OSError`."""
    left = memoryview(data)
    while left:
        opened.settimeout(_left_s(end))
        left = left[opened.send(left) :]


def receive_all(opened: socket.socket, most: int, end: Deadline) -> bytearray:
    """What comes until the other side closes the connection, and one byte more than ``most``
    at most. Raises `OSError`."""
    return receive_exactly(opened, most + 1, end)


def receive_exactly(opened: socket.socket, size: int, end: Deadline) -> bytearray:
    """``size`` bytes; fewer where the other side closed the connection.

    Raises TimeoutError at the end, and other `OSError`."""
    data = bytearray()
    while len(data) < size:
        opened.settimeout(_left_s(end))
        piece = opened.recv(min(size - len(data), _PIECE_BYTES))
        if not piece:
            break
        data += piece
    return data


def _left_s(end: Deadline) -> float:
    """A timeout for one call; 0 would mean not to wait at all."""
    left_s = end.left_s()
    if left_s <= 0:
        raise TimeoutError
    return left_s

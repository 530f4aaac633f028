"""Which connection of the election ports stays, as decisions without I/O:
ZooKeeper's `QuorumCnxManager`.

Two members need one connection, and both may try to make it. The one that the server with
the greater id made stays:

- A server that connects sends its greeting. If the other's id is greater, it drops the connection
  at once; the greeting alone says that it wants one.
- A server that gets the greeting of a smaller id drops that connection, and its old one with that
  server, which has likely restarted, and connects itself.
- A greeting of a greater id makes its connection the one that stays, in the place of an older one.

A server that the configuration does not name (a stranger) may ask who leads: a server that is to
join needs to know. It gets the answer, and then the end of the connection. It never takes a
member's place, and is not connected to.

For each peer one message is kept, the last that could not be sent; it leaves when there is a
connection. A new connection without such a message begins with the present vote if there is an
election, for the last one may be lost.

A link is a connection as the edge knows it. Methods return what the edge is to do.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["CloseLink", "ConnectTo", "LinkEffect", "Links", "SendOver"]

logger = logging.getLogger(__name__)

L = TypeVar("L")
_MAX_STRANGERS = 16


@dataclass(frozen=True, slots=True)
class ConnectTo:
    """Connect to a server's election port.

    ``address`` is given for a server that the configuration does not name."""

    peer_id: int
    address: str | None = None


@dataclass(frozen=True, slots=True)
class SendOver(Generic[L]):
    """Send over a link."""

    link: L
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseLink(Generic[L]):
    """Close a link when what was sent has left."""

    link: L


LinkEffect = ConnectTo | SendOver[L] | CloseLink[L]


class Links(Generic[L]):
    """The connections of one server with its peers."""

    __slots__ = (
        "_calls_back",
        "_connecting",
        "_first_words",
        "_greeting",
        "_is_member",
        "_my_id",
        "_strangers",
        "by_peer",
        "pending",
    )

    def __init__(
        self,
        my_id: int,
        greeting: bytes,
        is_member: Callable[[int], bool],
        first_words: Callable[[], bytes | None],
        *,
        calls_back: bool = False,
    ) -> None:
        """``greeting`` begins each connection to a member.

        It is empty where the edge sends it before it authenticates. ``is_member`` says whether a
        configuration in force, or one to come, names a server.

        ``first_words`` returns what to send over a new connection when no message waits. With
        ``calls_back`` a server that is to join, and has a smaller id, is connected to at the
        address that it gives.
        """
        self._calls_back = calls_back
        self._my_id = my_id
        self._greeting = greeting
        self._is_member = is_member
        self._first_words = first_words
        self.by_peer: dict[int, L] = {}
        """The link with each member."""
        self.pending: dict[int, bytes] = {}
        """The last message for each member that waits for a link."""
        self._strangers: dict[int, L] = {}
        self._connecting: set[int] = set()

    def peer_of(self, link: L) -> int | None:
        """The member at the other end."""
        return next((peer_id for peer_id, other in self.by_peer.items() if other == link), None)

    def send(self, peer_id: int, data: bytes) -> list[LinkEffect[L]]:
        """Send a message, or keep it until there is a link; an older one that waits is replaced."""
        stranger = self._strangers.pop(peer_id, None)
        if stranger is not None:
            return [SendOver(stranger, data), CloseLink(stranger)]
        link = self.by_peer.get(peer_id)
        if link is not None:
            return [SendOver(link, data)]
        if not self._is_member(peer_id):
            return []
        self.pending[peer_id] = data
        return self._connect(peer_id)

    def retry(self) -> list[LinkEffect[L]]:
        """Connect to the members for which messages wait."""
        return [effect for peer_id in sorted(self.pending) for effect in self._connect(peer_id)]

    def _connect(self, peer_id: int, address: str | None = None) -> list[LinkEffect[L]]:
        if peer_id in self._connecting or peer_id in self.by_peer:
            return []
        self._connecting.add(peer_id)
        return [ConnectTo(peer_id, address)]

    def connected(self, peer_id: int, link: L) -> list[LinkEffect[L]]:
        """The connection to a member stands."""
        self._connecting.discard(peer_id)
        greet: list[LinkEffect[L]] = [SendOver(link, self._greeting)] if self._greeting else []
        if peer_id > self._my_id:
            logger.info(
                "Have smaller server identifier, so dropping the connection: (myId:%d --> sid:%d)", self._my_id, peer_id
            )
            return [*greet, CloseLink(link)]
        return [*greet, *self._use(peer_id, link)]

    def not_connected(self, peer_id: int) -> None:
        """The connection to a member failed; its message waits for the next one."""
        self._connecting.discard(peer_id)

    def greeted(self, peer_id: int, link: L, address: str = "") -> list[LinkEffect[L]]:
        """A server has connected and sent its greeting, with the address of its own
        election port."""
        if peer_id == self._my_id:
            logger.warning(
                "Another server connects with this server's id %d. Check the file myid of both servers", peer_id
            )
            return [CloseLink(link)]
        if not self._is_member(peer_id):
            return self._greeted_by_stranger(peer_id, link, address)
        if peer_id > self._my_id:
            return self._use(peer_id, link)
        return [CloseLink(link), *self._replace(peer_id)]

    def _replace(self, peer_id: int, address: str | None = None) -> list[LinkEffect[L]]:
        """Connect to a server that asks for it.

        An older connection with it is of no use, for it has likely restarted."""
        old = self.by_peer.pop(peer_id, None)
        effects: list[LinkEffect[L]] = [] if old is None else [CloseLink(old)]
        return effects + self._connect(peer_id, address)

    def _greeted_by_stranger(self, peer_id: int, link: L, address: str) -> list[LinkEffect[L]]:
        if self._calls_back and address and peer_id < self._my_id and self._count_unnamed(peer_id) < _MAX_STRANGERS:
            return [CloseLink(link), *self._replace(peer_id, address)]
        if peer_id < self._my_id or len(self._strangers) >= _MAX_STRANGERS or peer_id in self._strangers:
            logger.info("Closing a connection of server %d, which the configuration does not name", peer_id)
            return [CloseLink(link)]
        self._strangers[peer_id] = link
        return []

    def _count_unnamed(self, but: int) -> int:
        known = (self.by_peer.keys() | self._connecting) - {but}
        return sum(not self._is_member(peer_id) for peer_id in known)

    def _use(self, peer_id: int, link: L) -> list[LinkEffect[L]]:
        old = self.by_peer.get(peer_id)
        self.by_peer[peer_id] = link
        effects: list[LinkEffect[L]] = [] if old is None else [CloseLink(old)]
        data = self.pending.pop(peer_id, None) or self._first_words()
        return effects if data is None else [*effects, SendOver(link, data)]

    def closed(self, link: L) -> None:
        """A link has ended."""
        for links in (self.by_peer, self._strangers):
            for peer_id in [peer_id for peer_id, other in links.items() if other == link]:
                del links[peer_id]

    def forget(self, peer_id: int, data: bytes | None = None) -> list[LinkEffect[L]]:
        """Give a link up that does not work, and connect again if there is a message to send."""
        link = self.by_peer.pop(peer_id, None)
        effects: list[LinkEffect[L]] = [] if link is None else [CloseLink(link)]
        return effects if data is None else effects + self.send(peer_id, data)

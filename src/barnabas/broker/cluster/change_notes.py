"""The sequential notes with which brokers announce changes to each other, as steps (Kafka's
`ZkNodeChangeNotificationListener`).

Who changes a znode that all brokers know leaves a note beside it. Every broker watches the place of
the notes, and reads again what the new ones name. A note stays for fifteen minutes.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter

from barnabas.broker.cluster.steps import (
    ITEMS_A_TURN,
    Children,
    Create,
    Delete,
    Pause,
    Read,
    Steps,
    WriteUnfenced,
    Znode,
)
from barnabas.wire.jute.opcodes import CreateMode

__all__ = ["ChangeNotes"]

_LIFETIME_MS = 15 * 60 * 1000
_NOTES_A_PAUSED_MS = 50
"""To list a note takes 1 us, so the looks take a twentieth of the time."""

Apply = Callable[[Sequence[tuple[str, bytes | None]]], Steps[None]]
"""Does what some notes, each with its path, ask for."""


class ChangeNotes:
    """The notes in one place, and which of them this broker has seen."""

    def __init__(self, root: str, prefix: str, wall_ms: Callable[[], int]) -> None:
        self.root = root
        """What is watched."""
        self._prefix = prefix
        self._wall_ms = wall_ms
        self._last_change = -1
        self._count = 0

    def note(self, data: bytes) -> Create:
        """The op that leaves a note."""
        return Create(f"{self.root}/{self._prefix}", data, CreateMode.PERSISTENT_SEQUENTIAL)

    def skip(self) -> Steps[list[str]]:
        """Take all notes for seen: what they name is read after this. Returns their paths."""
        notes = yield from self._numbered()
        if notes:
            self._last_change = notes[-1][0]
        return [path for _, path in notes]

    def pause(self) -> Steps[None]:
        """Wait before a look, so that with thousands of notes those of a time are looked at
        together: each look lists all notes of the last fifteen minutes."""
        if self._count > ITEMS_A_TURN:
            yield Pause(self._count // _NOTES_A_PAUSED_MS)

    def process(self, apply: Apply) -> Steps[None]:
        """Look for notes, work through those that are new, and delete those that all
        brokers must have seen."""
        notes = yield from self._numbered()
        self._count = len(notes)
        first_new = bisect_right(notes, self._last_change, key=itemgetter(0))
        for first in range(first_new, len(notes), ITEMS_A_TURN):
            some = notes[first : first + ITEMS_A_TURN]
            znodes: list[Znode | None] = yield Read([path for _, path in some])
            # Another broker may have deleted one.
            there = [(path, znode.data) for (_, path), znode in zip(some, znodes, strict=True) if znode is not None]
            yield from apply(there)
            self._last_change = some[-1][0]  # not before: what failed is looked at again
        yield from self.delete_expired([path for _, path in notes])

    def _numbered(self) -> Steps[list[tuple[int, str]]]:
        """The paths of all notes with their numbers, in the order in which they were made."""
        names: list[str] = yield Children(self.root)
        notes: list[tuple[int, str]] = []
        for name in names:
            number = name.removeprefix(self._prefix)
            if number.isdecimal():
                notes.append((int(number), f"{self.root}/{name}"))
            yield None  # there may be a hundred thousand
        notes.sort(key=itemgetter(0))
        return notes

    def delete_expired(self, paths: Sequence[str]) -> Steps[None]:
        """Delete the oldest notes, up to the first whose time has not come."""
        now_ms = self._wall_ms()
        first, count = 0, 1
        while first < len(paths):
            some = paths[first : first + count]
            znodes: list[Znode | None] = yield Read(some)
            there = [(path, znode) for path, znode in zip(some, znodes, strict=True) if znode is not None]
            expired = [path for path, znode in there if now_ms - znode.ctime_ms > _LIFETIME_MS]
            if expired:
                yield WriteUnfenced([Delete(path) for path in expired])
            if len(expired) < len(there):
                return
            first, count = first + count, ITEMS_A_TURN

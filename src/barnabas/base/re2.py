"""Regular expressions of RE2 for patterns that clients send: each character of a text costs at most
one look at each instruction of the pattern, whatever the pattern is.

Python's ``re`` tries one way after the other, so that ``(a+)+$`` holds the event loop for minutes.
Here all ways are followed together (Thompson). Each set of instructions that was reached is kept as
a node with its successors, so a pattern that is matched against many texts costs one look-up for
most characters. When there are too many nodes, all are dropped.

In Kafka: RE2/J, with its ``matches``, which wants the whole text.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.re2_syntax import Assertion, CharClass, Joined, Node, Re2Error, Repeated, parse_re2
from barnabas.base.tasks import Task

__all__ = ["Re2Error", "Re2Pattern", "json_schema_pattern"]

_MOST_INSTRUCTIONS = 1_000
_MOST_COMPILED = 4_000
_MOST_KEPT = 10_000
"""Some 2 MB, while the texts of one request are matched."""
_END = ""
"""Stands for what is before the first character and after the last."""


class _Jump(NamedTuple):
    """Continue at one or several instructions; at none, the text has matched."""

    targets: tuple[int, ...]


class _Edge(NamedTuple):
    """Continue at the next instruction if the character, or the place, fits."""

    test: CharClass | Assertion


_Instruction = _Jump | _Edge
_MATCH = _Jump(())
_ANYTHING = Repeated(CharClass(((0, 0x10FFFF),)), 0, None)
_ECMA_CODE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
"""An escape, as ECMAScript has it: ``\\u00e9``, which RE2 writes ``\\x{00e9}``."""


class _Reached:
    """A set of instructions that is reached after some character, and its successor for each next
    character."""

    __slots__ = ("before", "is_end", "next", "positions")

    def __init__(self, positions: tuple[int, ...], before: str) -> None:
        self.positions = positions
        self.before = before
        self.next: dict[str, _Reached] = {}
        self.is_end: bool | None = None


class Re2Pattern:
    """A compiled pattern. Raises `Re2Error` if the pattern is invalid or too large.

    With ``anywhere`` a text matches if a part of it does."""

    def __init__(self, pattern: str, *, anywhere: bool = False) -> None:
        self._program: list[_Instruction] = []
        self._compiled = 0
        tree = parse_re2(pattern)
        self._compile(Joined((_ANYTHING, tree, _ANYTHING)) if anywhere else tree)
        self._program.append(_MATCH)
        self._nodes: dict[tuple[tuple[int, ...], str], _Reached] = {}
        self._kept = 0
        """The number of instructions and successors in all nodes."""
        self.looks = 0
        """The looks at instructions since the pattern was compiled: what its matching has cost."""

    @property
    def size(self) -> int:
        """The number of instructions."""
        return len(self._program)

    def keep_at_most(self, kept: int) -> None:
        """Drop all nodes if they have more than ``kept`` instructions and successors."""
        if self._kept > kept:
            self._nodes.clear()
            self._kept = 0

    def matches(self, text: str) -> Task[bool]:
        """Whether the whole text matches."""
        node = self._node((0,), _END)
        for char in text:
            known = node.next.get(char)
            if known is None:
                known = self._follow(node, char)
                yield None
            node = known
            if not node.positions:
                return False
        if node.is_end is None:
            node.is_end = any(self._program[each] is _MATCH for each in self._closure(node, _END))
            yield None
        return node.is_end

    def _node(self, positions: tuple[int, ...], before: str) -> _Reached:
        key = positions, before
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = _Reached(positions, before)
            self._kept += len(positions)
        return node

    def _follow(self, node: _Reached, char: str) -> _Reached:
        if self._kept >= _MOST_KEPT:
            self._nodes.clear()
            self._kept = 0
        reached = []
        tested: dict[int, bool] = {}
        """Results by the `id` of the class: the copies of a repeated part share one class."""
        for position in self._closure(node, char):
            test = getattr(self._program[position], "test", None)
            if not isinstance(test, CharClass):
                continue
            if id(test) not in tested:
                tested[id(test)] = test.has(char)
            if tested[id(test)]:
                reached.append(position + 1)
        following = self._node(tuple(reached), _kind(char))
        node.next[char] = following
        self._kept += 1
        return following

    def _closure(self, node: _Reached, after: str) -> list[int]:
        """The instructions that are reached without another character, in order."""
        waiting, seen = list(node.positions), set(node.positions)
        while waiting:
            position = waiting.pop()
            instruction = self._program[position]
            following: tuple[int, ...] = ()
            if isinstance(instruction, _Jump):
                following = instruction.targets
            elif isinstance(instruction.test, Assertion) and _holds(instruction.test, node.before, after):
                following = (position + 1,)
            for each in following:
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        self.looks += len(seen)
        return sorted(seen)

    # The program

    def _compile(self, node: Node) -> None:
        """Append the instructions of a part; the next part follows them."""
        self._compiled += 1
        if len(self._program) > _MOST_INSTRUCTIONS or self._compiled > _MOST_COMPILED:
            raise Re2Error("the pattern is too large")
        match node:
            case CharClass() | Assertion():
                self._program.append(_Edge(node))
            case Joined(parts, True):
                self._compile_choice([lambda part=part: self._compile(part) for part in parts])  # type: ignore[misc]
            case Joined(parts):
                for part in parts:
                    self._compile(part)
            case Repeated(part, least, most):
                for _ in range(least):
                    self._compile(part)
                if most is None:
                    self._compile_loop(part)
                else:
                    self._compile_optional(part, most - least)

    def _compile_choice(self, options: list[Callable[[], None]]) -> None:
        split = self._reserve()
        starts, ends = [], []
        for option in options:
            starts.append(len(self._program))
            option()
            ends.append(self._reserve())
        self._program[split] = _Jump(tuple(starts))
        for end in ends:
            self._program[end] = _Jump((len(self._program),))

    def _compile_loop(self, part: Node) -> None:
        split = self._reserve()
        self._compile(part)
        self._program.append(_Jump((split,)))
        self._program[split] = _Jump((split + 1, len(self._program)))

    def _compile_optional(self, part: Node, times: int) -> None:
        splits = []
        for _ in range(times):
            splits.append(self._reserve())
            self._compile(part)
        for split in splits:
            self._program[split] = _Jump((split + 1, len(self._program)))

    def _reserve(self) -> int:
        self._program.append(_MATCH)
        return len(self._program) - 1


def json_schema_pattern(pattern: str) -> Re2Pattern:
    """A pattern of JSON Schema, which a text fits if a part of it matches. Raises `Re2Error`.

    JSON Schema has the syntax of ECMAScript; what RE2 does not share, such as lookarounds and
    backreferences, is an error."""
    return Re2Pattern(
        _ECMA_CODE.sub(lambda found: f"\\x{{{found[1]}}}" if found[1] else found[0], pattern), anywhere=True
    )


def _kind(char: str) -> str:
    """One character for all those that an assertion after them treats alike."""
    if char == "\n":
        return char
    return "a" if _is_word(char) else " "


def _is_word(char: str) -> bool:
    return char != _END and char.isascii() and (char.isalnum() or char == "_")


def _holds(assertion: Assertion, before: str, after: str) -> bool:
    match assertion.kind:
        case "A":
            return before == _END
        case "z":
            return after == _END
        case "^":
            return before in (_END, "\n")
        case "$":
            return after in (_END, "\n")
        case "b":
            return _is_word(before) != _is_word(after)
        case _:
            return _is_word(before) == _is_word(after)

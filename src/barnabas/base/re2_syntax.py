"""The syntax of RE2's regular expressions, parsed into a tree.

A pattern comes from a client, so its length, its depth and the size of its program have limits
(`Re2Error`). What RE2 does not have, such as backreferences and lookarounds, is an error, and so
are Unicode's scripts (``\\p{Greek}``), because Python has no table of them. General categories
(``\\p{Lu}``) are supported.

Source: the syntax page of RE2. In Kafka: RE2/J.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from barnabas.base.errors import BarnabasError

__all__ = ["Assertion", "CharClass", "Joined", "Node", "Re2Error", "Repeated", "parse_re2"]

_MOST_LETTERS = 1_000
_MOST_DEPTH = 100
_MOST_REPEATS = 1_000
_LAST = 0x10FFFF


class Re2Error(BarnabasError):
    """A pattern that cannot be used."""


class CharClass(NamedTuple):
    """The characters that one place of a text may have."""

    ranges: tuple[tuple[int, int], ...] = ()
    categories: tuple[str, ...] = ()
    """Unicode's general categories, or their first letters."""
    parts: "tuple[CharClass, ...]" = ()
    is_negated: bool = False
    folds: bool = False
    """Whether upper and lower case are the same."""

    def has(self, char: str) -> bool:
        """Whether a character belongs to the class."""
        kinds = _same_letters(char) if self.folds else (char,)
        return any(self._lists(each) for each in kinds) is not self.is_negated

    def _lists(self, char: str) -> bool:
        code = ord(char)
        return (
            any(first <= code <= last for first, last in self.ranges)
            or (bool(self.categories) and unicodedata.category(char).startswith(self.categories))
            or any(part.has(char) for part in self.parts)
        )


@lru_cache(1_000)
def _same_letters(char: str) -> tuple[str, ...]:
    """The letter itself, and those that differ only in case (Unicode's simple folding)."""
    if char in _WITHOUT_CASE:
        return (char,)
    base = _FORMS.get(char, char)
    found = {char, base, base.lower(), base.upper(), base.title(), *_OTHER_FORMS.get(base.lower(), ())}
    return tuple(each for each in found if len(each) == 1)


class Assertion(NamedTuple):
    """A place between two characters: one of ``^ $ A z b B``; ``^`` and ``$`` are of a line."""

    kind: str


class Joined(NamedTuple):
    """Several parts in sequence, or with ``is_choice`` one of them."""

    parts: "Sequence[Node]"
    is_choice: bool = False


class Repeated(NamedTuple):
    """A part that is repeated; ``most`` is None if there is no limit."""

    part: "Node"
    least: int
    most: int | None


Node = CharClass | Assertion | Joined | Repeated

_WITHOUT_CASE = frozenset("\u0130\u0131")
"""The dotted I and the dotless i, which have another case in Turkic languages only."""

_LETTERS_OF_FORMS = {
    "k": "\u212a",
    "s": "\u017f",
    "\u00df": "\u1e9e",
    "\u00e5": "\u212b",
    "\u03b2": "\u03d0",
    "\u03b5": "\u03f5",
    "\u03b8": "\u03d1\u03f4",
    "\u03b9": "\u0345\u1fbe",
    "\u03ba": "\u03f0",
    "\u03bc": "\u00b5",
    "\u03c0": "\u03d6",
    "\u03c1": "\u03f1",
    "\u03c3": "\u03c2",
    "\u03c6": "\u03d5",
    "\u03c9": "\u2126",
    "\u0432": "\u1c80",
    "\u0434": "\u1c81",
    "\u043e": "\u1c82",
    "\u0441": "\u1c83",
    "\u0442": "\u1c84\u1c85",
    "\u044a": "\u1c86",
    "\u0463": "\u1c87",
    "\ua64b": "\u1c88",
    "\u1e61": "\u1e9b",
}
"""Letters that have more forms than a lower, an upper and a title case, such as the Kelvin sign."""
_OTHER_FORMS = {letter: tuple(forms) for letter, forms in _LETTERS_OF_FORMS.items()}
_FORMS = {form: letter for letter, forms in _OTHER_FORMS.items() for form in forms}

_DIGITS = CharClass(((48, 57),))
_SPACES = CharClass(((9, 10), (12, 13), (32, 32)))
_WORDS = CharClass(((48, 57), (65, 90), (95, 95), (97, 122)))
_PERL = {"d": _DIGITS, "s": _SPACES, "w": _WORDS}
_POSIX = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORDS.ranges,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CATEGORIES = frozenset(
    (
        *("C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No"),
        *("P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
    )
)
_REPETITIONS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_OCTAL = "01234567"
_HEX = "0123456789abcdefABCDEF"


def parse_re2(pattern: str) -> Node:
    """Parse a pattern into a tree. Raises `Re2Error`."""
    if len(pattern) > _MOST_LETTERS:
        raise Re2Error(f"the pattern has more than {_MOST_LETTERS} characters")
    return _Parser(pattern).whole()


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._flags = frozenset[str]()
        self._names: set[str] = set()

    def whole(self) -> Node:
        tree = self._choice()
        if self._at < len(self._text):
            raise Re2Error("unexpected ): " + f"`{self._text}`")
        return tree

    def _takes(self, text: str) -> bool:
        """Whether the rest begins with a text; if so, step over it."""
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _next(self, missing: str) -> str:
        if self._at >= len(self._text):
            raise Re2Error(missing)
        self._at += 1
        return self._text[self._at - 1]

    # Structure

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._takes("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Joined(options, is_choice=True)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._takes("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at : None if end < 0 else end]
                self._at = len(self._text) if end < 0 else end + 2
                parts += map(self._literal, quoted)
                if parts:
                    parts[-1] = self._repeated(parts[-1])
                continue
            is_brace = self._text[self._at] == "{"
            part = self._atom()
            if part is not None:
                parts.append(part)
            if is_brace:
                self._check_no_repetition(self._at - 1)
            elif parts:  # flags may stand between a part and its repetition
                parts[-1] = self._repeated(parts[-1])
        return parts[0] if len(parts) == 1 else Joined(parts)

    def _atom(self) -> Node | None:
        """The next part without its repetition; None for flags."""
        char = self._text[self._at]
        if char in "*+?" or (char == "{" and self._counts_at(self._at) is not None):
            raise Re2Error(f"missing argument to repetition operator: `{char}`")
        self._at += 1
        match char:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return CharClass(((0, _LAST),)) if "s" in self._flags else CharClass(((10, 10),), is_negated=True)
            case "^":
                return Assertion("^" if "m" in self._flags else "A")
            case "$":
                return Assertion("$" if "m" in self._flags else "z")
            case "\\":
                return self._escape()
            case _:
                return self._literal(char)

    def _literal(self, char: str) -> CharClass:
        return CharClass(((ord(char), ord(char)),), folds="i" in self._flags)

    def _repeated(self, part: Node) -> Node:
        begin = self._at
        found = self._repetition()
        if found is None:
            return part
        self._takes("?")
        self._check_no_repetition(begin)
        return Repeated(part, *found)

    def _check_no_repetition(self, begin: int) -> None:
        if self._repetition() is not None:
            raise Re2Error(f"invalid nested repetition operator: `{self._text[begin : self._at]}`")

    def _repetition(self) -> tuple[int, int | None] | None:
        """Step over a repetition operator and return its bounds; None if there is none."""
        begin = self._at
        char = self._text[begin : begin + 1]
        simple = _REPETITIONS.get(char)
        if simple is not None:
            self._at += 1
            return simple
        found = self._counts_at(begin) if char == "{" else None
        if found is None:
            return None
        least, most, self._at = found
        if least > _MOST_REPEATS or (most is not None and not least <= most <= _MOST_REPEATS):
            raise Re2Error(f"invalid repeat count: `{self._text[begin : self._at]}`")
        return least, most

    def _counts_at(self, begin: int) -> tuple[int, int | None, int] | None:
        """The bounds in ``{2}``, ``{2,}`` or ``{2,5}``, and where the operator ends; None for
        anything else, which is literal text."""
        end = self._text.find("}", begin, begin + 16)
        least, comma, most = self._text[begin + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None
        return int(least), (int(most) if most else None) if comma else int(least), end + 1

    # Groups

    def _group(self) -> Node | None:
        before = self._flags
        if self._takes("?") and not self._named() and self._sets_flags():
            return None
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise Re2Error("expression nests too deeply")
        inner = self._choice()
        self._depth -= 1
        if not self._takes(")"):
            raise Re2Error(f"missing closing ): `{self._text}`")
        self._flags = before
        return inner

    def _named(self) -> bool:
        if not (self._takes("P<") or self._takes("<")):
            return False
        end = self._text.find(">", self._at)
        name = self._text[self._at : max(end, self._at)]
        if not (name.isascii() and name.replace("_", "a").isalnum()):
            raise Re2Error(f"invalid named capture: `{self._text[self._at - 1 :][:40]}`")
        if name in self._names:
            raise Re2Error(f"duplicate capture group name: `{name}`")
        self._names.add(name)
        self._at = end + 1
        return True

    def _sets_flags(self) -> bool:
        """Read ``(?i-s:`` or ``(?i)``; whether it is the latter, which holds to the end of
        the enclosing group."""
        flags, is_set, begin = set(self._flags), True, self._at
        while True:
            char = self._next(f"missing argument to repetition operator: `{self._text[begin - 1 :]}`")
            if char in ":)":
                if self._text[self._at - 2] == "-":
                    raise self._bad_flags(begin)
                self._flags = frozenset(flags)
                return char == ")"
            if char == "-" and is_set:
                is_set = False
            elif char in "imsU":
                (flags.add if is_set else flags.discard)(char)
            else:
                raise self._bad_flags(begin)

    def _bad_flags(self, begin: int) -> Re2Error:
        return Re2Error(f"invalid or unsupported Perl syntax: `{self._text[begin - 2 : self._at]}`")

    # Escapes

    def _escape(self) -> Node:
        char = self._next("trailing backslash at end of expression")
        if char in "AzbB":
            return Assertion(char)
        found = self._class_escape(char)
        return self._literal(chr(self._code(char))) if found is None else found

    def _class_escape(self, char: str) -> CharClass | None:
        """A class such as ``\\d`` or ``\\pL``; None if the letter begins a single character."""
        if char.lower() in _PERL:
            return _PERL[char.lower()]._replace(is_negated=char.isupper(), folds="i" in self._flags)
        if char not in "pP":
            return None
        name = self._next("invalid character class range: `\\p`")
        if name == "{":
            end = self._text.find("}", self._at)
            name, self._at = self._text[self._at : max(end, self._at)], end + 1
        negated = name.startswith("^")
        name = name.removeprefix("^")
        if name != "Any" and name not in _CATEGORIES:
            raise Re2Error(f"invalid character class range: `\\{char}{{{name}}}`")
        ranges = ((0, _LAST),) if name == "Any" else ()
        is_negated = negated is not (char == "P")
        return CharClass(ranges, () if ranges else (name,), is_negated=is_negated, folds="i" in self._flags)

    def _code(self, char: str) -> int:
        """The code of an escaped character; the escape's first letter has been read."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hex()
        following = self._text[self._at : self._at + 1]
        if char == "0" or (char in "1234567" and following and following in _OCTAL):
            digits = char
            while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple(_OCTAL):
                digits += self._next("")
            return int(digits, 8)
        if not (char.isascii() and char.isalnum()):
            return ord(char)
        raise Re2Error(f"invalid escape sequence: `\\{char}`")

    def _hex(self) -> int:
        if self._takes("{"):
            end = self._text.find("}", self._at)
            digits, self._at = self._text[self._at : max(end, self._at)], end + 1
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            if len(digits) < 2:
                digits = ""
        if not digits or len(digits) > 8 or not set(digits) <= set(_HEX) or int(digits, 16) > _LAST:
            raise Re2Error(f"invalid escape sequence: `\\x{digits}`")
        return int(digits, 16)

    # Classes

    def _class(self) -> Node:
        missing = f"missing closing ]: `{self._text[self._at - 1 :]}`"
        is_negated = self._takes("^")
        ranges: list[tuple[int, int]] = []
        parts: list[CharClass] = []
        is_first = True
        while is_first or not self._takes("]"):
            is_first = False
            found = self._class_in_class()
            if found is not None:
                parts.append(found)
                continue
            begin = self._at
            first = last = self._class_char(missing)
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._class_char(missing)
            if last < first:
                raise Re2Error(f"invalid character class range: `{self._text[begin : self._at]}`")
            ranges.append((first, last))
        # One part hundreds of times would be asked for each letter.
        return CharClass(tuple(ranges), (), tuple(dict.fromkeys(parts)), is_negated, "i" in self._flags)

    def _class_in_class(self) -> CharClass | None:
        """A class inside another one, ``[:alpha:]`` or ``\\d``."""
        if self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at + 2)
            if end >= 0:
                name = self._text[self._at + 2 : end]
                if name.removeprefix("^") not in _POSIX:
                    raise Re2Error(f"invalid character class range: `[:{name}:]`")
                self._at = end + 2
                is_negated = name.startswith("^")
                return CharClass(_POSIX[name.removeprefix("^")], is_negated=is_negated, folds="i" in self._flags)
        if self._text[self._at : self._at + 1] == "\\" and self._text[self._at + 1 : self._at + 2] in tuple("dDsSwWpP"):
            self._at += 2
            return self._class_escape(self._text[self._at - 1])
        return None

    def _class_char(self, missing: str) -> int:
        char = self._next(missing)
        return ord(char) if char != "\\" else self._code(self._next(missing))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0"))

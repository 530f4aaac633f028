"""What becomes of a dead letter, or of a replayed record, that its topic refuses.

Needs neither Spark nor a broker. A dead letter has more headers than its record, so it may be
larger than its topic allows although the record was not. If the flow ended at it, the one record
that dead letters are for would stop all others. So a letter that is refused is sent in its next
form, and this goes on until the topic takes it:

1. The reason is cut to its first characters.
2. The record's own headers are left out.
3. The value is cut to its first half, again and again; then the key.

A letter that lacks bytes of its record has their number in the header ``barnabas.cut``. The whole
record is still in the source's topic, at the position in ``barnabas.source``;
`barnabas.pipelines.dead_letters.replay` takes it from there. A compacted topic refuses records
without a key: a letter gets its position for one, and the header ``barnabas.no_key``.

A replayed record must not be changed. It loses the header that we add, and if it is still refused
it becomes a dead letter again.

Workers have no way to report to the driver. So they append what they did to a file of its own, a
line for each step. A worker that cannot note that a replayed record was refused ends the replay:
the note is all by which that record becomes a dead letter again.
"""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.pipelines.errors import PipelineError

__all__ = [
    "CUT",
    "NO_KEY",
    "OF_RECORDS",
    "REASON",
    "REPLAYED",
    "SOURCE",
    "Letter",
    "LetterNote",
    "NextForm",
    "RefusalPolicy",
    "letters_file",
    "next_letter",
    "next_replayed",
    "note_letter",
    "noted_letters",
    "refusal_policy_of",
]

logger = logging.getLogger(__name__)
SOURCE: Final = "barnabas.source"
REASON: Final = "barnabas.reason"
REPLAYED: Final = "barnabas.replayed"
CUT: Final = "barnabas.cut"
NO_KEY: Final = "barnabas.no_key"
_OURS: Final = "barnabas."
_TOO_LARGE: Final = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
_INVALID: Final = "INVALID_RECORD"
OF_RECORDS: Final = frozenset((*_TOO_LARGE, _INVALID, "INVALID_TIMESTAMP"))
"""Codes that say something of one record; the topic may take another one."""
_REASON_BYTES: Final = 500
_CUT_MARK: Final = b"..."


class Letter(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> str:
        """The last header of that name as text; empty if there is none."""
        found = [content for each, content in self.headers if each == name]
        return (found[-1] or b"").decode(errors="replace") if found else ""

    def without(self, name: str) -> "Letter":
        """The same without headers of that name."""
        return self._replace(headers=tuple(each for each in self.headers if each[0] != name))

    def having(self, name: str, content: bytes) -> "Letter":
        """The same with one header of that name, the last one."""
        return self._replace(headers=(*self.without(name).headers, (name, content)))


class LetterNote(NamedTuple):
    """Notes that the letter of a record was cut by ``cut_bytes``, or that a replayed record
    was refused for a reason."""

    position: str
    cut_bytes: int
    reason: str = ""


class NextForm(NamedTuple):
    """What becomes of a record that is refused: its next form, or None if it is not written;
    and what is noted of that."""

    letter: Letter | None
    note: LetterNote | None = None


AfterRefusal = Callable[[Letter, str, str, str], NextForm | None]
"""Takes a refused record, its position, the name of the error and the broker's text; None if only
the error is left to raise."""


def next_letter(letter: Letter, position: str, code: str, text: str) -> NextForm | None:  # noqa: ARG001  # the type's
    """The next form of a dead letter."""
    if code == _INVALID and letter.key is None:
        return NextForm(letter._replace(key=position.encode()).having(NO_KEY, b"true"))
    smaller = _smaller(letter) if code in _TOO_LARGE else None
    if smaller is None:
        return None
    before = letter.header(CUT)
    cut_bytes = (int(before) if before else 0) + _record_bytes(letter) - _record_bytes(smaller)
    if not cut_bytes:  # our reason alone is shorter
        return NextForm(smaller)
    return NextForm(smaller.having(CUT, b"%d" % cut_bytes), LetterNote(position, cut_bytes))


def _smaller(letter: Letter) -> Letter | None:
    reason = letter.header(REASON).encode()
    if len(reason) > _REASON_BYTES + len(_CUT_MARK):
        return letter.having(REASON, reason[:_REASON_BYTES].decode(errors="ignore").encode() + _CUT_MARK)
    ours = tuple(each for each in letter.headers if each[0].startswith(_OURS))
    if ours != letter.headers:
        return letter._replace(headers=ours)
    if letter.value:
        return letter._replace(value=letter.value[: len(letter.value) // 2])
    if letter.key and not letter.header(NO_KEY):
        return letter._replace(key=letter.key[: len(letter.key) // 2])
    return None


def _record_bytes(letter: Letter) -> int:
    """The bytes of what the letter has of its record."""
    own = [each for each in letter.headers if not each[0].startswith(_OURS)]
    headers = sum(len(name.encode(errors="replace")) + len(content or b"") for name, content in own)
    key = b"" if letter.header(NO_KEY) else letter.key
    return len(key or b"") + len(letter.value or b"") + headers


def next_replayed(record: Letter, position: str, code: str, text: str) -> NextForm | None:
    """A replayed record without our header; if that is refused, too, it is not written."""
    if code not in OF_RECORDS:
        return None
    if code in _TOO_LARGE and record.header(REPLAYED):
        return NextForm(record.without(REPLAYED))
    return NextForm(None, LetterNote(position, 0, text))


class RefusalPolicy(NamedTuple):
    """What a writer does about records that a topic refuses."""

    after_refusal: AfterRefusal
    position_header: str
    """The header that has a record's position, at first."""
    notes: Path

    def next_form_of(self, letter: Letter, position: str, code: str, text: str) -> NextForm | None:
        """Like `AfterRefusal`; the note is kept.

        Raises `PipelineError` if a record is not to be written and that cannot be noted:
        the record would be lost.
        """
        found = self.after_refusal(letter, position, code, text)
        if found is None or found.note is None:
            return found
        try:
            note_letter(self.notes, found.note)
        except OSError as error:
            problem = f"{self.notes}: {error.strerror or error}"
            if found.letter is None:
                raise PipelineError(
                    f"{position}: its topic refuses the record ({text}), and that cannot be noted: {problem}: "
                    "the folder must be one that all workers can write to"
                ) from error
            logger.warning("%s: the dead letter of %s is not counted", problem, position)
        return found


_BY_NAME: Final[dict[str, tuple[AfterRefusal, str]]] = {
    "letter": (next_letter, SOURCE),
    "replayed": (next_replayed, REPLAYED),
}
"""By the values of the sink's option ``onRefusal``."""


def refusal_policy_of(name: str | None, notes: str | None) -> RefusalPolicy | None:
    """What the sink's options ``onRefusal`` and ``lettersFile`` ask for."""
    return RefusalPolicy(*_BY_NAME[name], Path(notes)) if name and notes else None


def letters_file(checkpoint: Path) -> Path:
    """Where workers note what became of letters that a topic refused."""
    return checkpoint / "letters.jsonl"


def note_letter(path: Path, note: LetterNote) -> None:
    """Append a note; raises `OSError`.

    Short lines of several workers do not mix, nor with one that a full disk cut off."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{json.dumps(note)}\n")


def noted_letters(path: Path) -> dict[str, LetterNote]:
    """The last note of each record, by its position; none if there is no file.

    Raises `OSError` if it cannot be read."""
    try:
        lines: Sequence[str] = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    found: dict[str, LetterNote] = {}
    for line in lines:
        try:
            note = LetterNote(*json.loads(line))
        except (ValueError, TypeError):  # empty, or it is being written
            continue
        found[note.position] = note
    return found

"""A dead letter that its topic refuses gets smaller until it fits, and says what it lacks."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cli.pipelines import pipeline
from barnabas.pipelines.connector.letters import (
    CUT,
    NO_KEY,
    REASON,
    REPLAYED,
    SOURCE,
    Letter,
    LetterNote,
    letters_file,
    next_letter,
    next_replayed,
    note_letter,
    noted_letters,
    refusal_policy_of,
)
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.progress.progress import Totals
from barnabas.pipelines.progress.summary_text import wrong_lines

AT = "images-0-17"
names = st.sampled_from(["trace", "barnabas.replayed", "ä"])
contents = st.one_of(st.none(), st.binary(max_size=2000))


def size(letter: Letter) -> int:
    """What a broker with a limit looks at."""
    headers = sum(len(name.encode()) + len(content or b"") for name, content in letter.headers)
    return len(letter.key or b"") + len(letter.value or b"") + headers


@settings(max_examples=200, deadline=None)
@given(
    key=contents, value=contents, own=st.lists(st.tuples(names, contents), max_size=4), reason=st.text(max_size=1000),
    limit=st.integers(600, 5000),
)  # fmt: skip
def test_a_letter_shrinks_until_its_topic_takes_it_and_counts_what_it_lacks(
    key: bytes | None, value: bytes | None, own: list[tuple[str, bytes | None]], reason: str, limit: int
) -> None:
    """Whatever the record, a topic with room for our headers gets a letter; what is left of key and
    value is how they begin."""
    ours = ((SOURCE, AT.encode()), (REASON, reason.encode()), ("barnabas.error", b"MALFORMED"))
    own = [(name, None if name.startswith("barnabas.") else content) for name, content in own]
    first = letter = Letter(key, value, (*own, *ours))
    note: LetterNote | None = None
    for _ in range(100):
        if size(letter) <= limit + len(letter.header(CUT)) + len(CUT):
            break
        refused = next_letter(letter, AT, "MESSAGE_TOO_LARGE", "")
        assert refused is not None
        assert refused.letter is not None
        assert size(refused.letter) < size(letter) + len(CUT) + 10
        letter, note = refused.letter, refused.note or note
    else:
        pytest.fail("it does not end")
    assert (first.key or b"").startswith(letter.key or b"")
    assert (first.value or b"").startswith(letter.value or b"")
    assert (letter.key is None, letter.value is None) == (key is None, value is None)
    assert letter.header(SOURCE) == AT
    assert letter.header("barnabas.error") == "MALFORMED"
    kept = [each for each in letter.headers if each in own and not each[0].startswith("barnabas.")]
    lost_headers = [] if kept else [each for each in own if not each[0].startswith("barnabas.")]
    lacks = sum(len(name.encode()) + len(content or b"") for name, content in lost_headers)
    lacks += len(key or b"") - len(letter.key or b"") + len(value or b"") - len(letter.value or b"")
    assert letter.header(CUT) == (str(lacks) if lacks else "")
    assert (note.cut_bytes if note else 0) == lacks


def test_a_letter_without_a_key_gets_its_position_for_one_where_a_key_is_needed() -> None:
    """Compacted topics refuse records without a key; a letter with one that is
    refused has no other form."""
    letter = Letter(None, b"x", ((SOURCE, AT.encode()),))
    refused = next_letter(letter, AT, "INVALID_RECORD", "no key")
    assert refused is not None
    assert refused.letter is not None
    assert (refused.letter.key, refused.letter.header(NO_KEY)) == (AT.encode(), "true")
    assert next_letter(refused.letter, AT, "INVALID_RECORD", "no key") is None


@pytest.mark.parametrize("code", ["TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TIMESTAMP"])
def test_what_is_not_about_the_letter_is_raised(code: str) -> None:
    """Another form of it would be refused, too."""
    assert next_letter(Letter(b"k", b"x", ()), AT, code, "") is None


def test_a_replayed_record_loses_our_header_and_nothing_else() -> None:
    """If it is still refused it is not written, and the driver learns why."""
    record = Letter(b"k", b"x" * 100, (("own", b"1"), (REPLAYED, AT.encode())))
    refused = next_replayed(record, AT, "MESSAGE_TOO_LARGE", "too large")
    assert refused is not None
    assert refused.letter == Letter(b"k", b"x" * 100, (("own", b"1"),))
    assert next_replayed(refused.letter, AT, "MESSAGE_TOO_LARGE", "too large") == (None, (AT, 0, "too large"))
    assert next_replayed(record, AT, "INVALID_TIMESTAMP", "late") == (None, (AT, 0, "late"))
    assert next_replayed(record, AT, "NOT_LEADER_OR_FOLLOWER", "") is None


def test_a_letter_counts_once_however_often_it_was_cut(tmp_path: Path) -> None:
    """The last note of a record is the one that counts; a line that is being written
    is left out."""
    path = letters_file(tmp_path)
    assert noted_letters(path) == {}
    for cut in (500, 750, 875):
        note_letter(path, LetterNote(AT, cut))
    note_letter(path, LetterNote("images-1-3", 5))
    with path.open("a") as file:
        file.write('["images-1-4", 1')
    assert [each.cut_bytes for each in noted_letters(path).values()] == [875, 5]


def test_a_refused_replayed_record_that_cannot_be_noted_is_an_error(tmp_path: Path) -> None:
    """It is not written, so without its note it would be lost; a worker on another
    machine has no such folder."""
    notes = tmp_path / "elsewhere" / "notes.jsonl"
    policy = refusal_policy_of("replayed", str(notes))
    assert policy is not None
    record = Letter(b"k", b"x", ())
    with pytest.raises(
        PipelineError, match=f"{AT}: its topic refuses the record .late., and that cannot be noted: {notes}: No such"
    ):
        policy.next_form_of(record, AT, "INVALID_TIMESTAMP", "late")
    notes.parent.mkdir()
    assert policy.next_form_of(record, AT, "INVALID_TIMESTAMP", "late") == (None, (AT, 0, "late"))
    assert noted_letters(notes) == {AT: (AT, 0, "late")}


def test_a_letter_that_is_cut_is_written_though_that_cannot_be_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The letter itself says what it lacks; only the figure is wrong, which a warning says."""
    policy = refusal_policy_of("letter", str(tmp_path / "elsewhere" / "notes.jsonl"))
    assert policy is not None
    found = policy.next_form_of(Letter(b"k", b"x" * 100, ()), AT, "MESSAGE_TOO_LARGE", "")
    assert found is not None
    assert found.letter is not None
    assert f"the dead letter of {AT} is not counted" in caplog.text


def test_a_note_behind_one_that_was_cut_off_is_read(tmp_path: Path) -> None:
    """A full disk leaves a part of a line; the task that is run again notes the record whole."""
    path = letters_file(tmp_path)
    path.write_text('["images-0-17", 0, "too la')
    note_letter(path, LetterNote(AT, 0, "too large"))
    assert noted_letters(path) == {AT: (AT, 0, "too large")}


def test_notes_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    """They would look like none, and refused records would be lost."""
    with pytest.raises(IsADirectoryError):
        noted_letters(tmp_path)


def test_the_summary_names_letters_that_were_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A number and an example, in the lines below the summary."""
    totals = Totals(cut_letters=3, cut_letter_example=f"{AT} (875 bytes are left out)")
    expected = (
        "cut: 3 dead letters were too large for their topic and lack a part of their record; for example: "
        f"{AT} (875 bytes are left out)"
    )
    assert list(wrong_lines(totals.as_dict())) == [expected]
    pipeline._print_summary({"flow": "f", "status": "done", **totals.as_dict(), "lag": 0}, "text")
    assert f"  {expected}" in capsys.readouterr().out.splitlines()

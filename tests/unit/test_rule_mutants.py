"""The mutants of rules fit the code, and a sample of them is killed; ``make mutants`` tries all."""

import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import rule_mutants
from rule_mutants import Tree, outdated
from support.mutated_rules import Rule, all_rules

SAMPLE = 3


def sample() -> list[Rule]:
    """Others for each commit, the same in all processes of a run."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # the sources without their history
        commit = "no commit"
    return random.Random(commit).sample(all_rules(), SAMPLE)


def test_every_change_fits_the_code_and_every_test_is_there() -> None:
    """Where the code has moved on, the output says what is missing."""
    assert [why for rule in all_rules() if (why := outdated(rule)) is not None] == []


def test_every_rule_and_every_change_is_in_the_tables_once() -> None:
    """A rule that stands twice would hide one that is missing."""
    rules = all_rules()
    assert [text for text, count in Counter(rule.text for rule in rules).items() if count > 1] == []
    assert len({rule[1:4] for rule in rules}) == len(rules)


def test_a_sample_of_this_commit_is_killed(tmp_path: Path) -> None:
    """Each of their tests passes with the rule, elsewhere in this suite, and fails without it."""
    tree = Tree(tmp_path)
    outcomes = [tree.try_without(rule) for rule in sample()]
    assert [(outcome.rule.text, outcome.text) for outcome in outcomes if not outcome.is_killed] == []


def rule_of(test: str) -> Rule:
    """A change that can be noticed and breaks nothing."""
    source = (rule_mutants.SOURCE / "barnabas" / "__init__.py").read_text()
    return Rule("a rule", "__init__.py", source, f"{source}\nCHANGED = True\n", test)


@pytest.mark.parametrize(("test", "is_killed"), [("test_itself", True), ("test_with_a_fixture", False)])
def test_only_the_failure_of_the_test_itself_kills_a_mutant(tmp_path: Path, test: str, is_killed: bool) -> None:
    """An error of what a test needs would be one with any change that breaks enough,
    whatever the test looks at."""
    file = tmp_path / "test_changed.py"
    file.write_text(
        "import barnabas, pytest\n\n"
        "@pytest.fixture\ndef unchanged():\n    assert not hasattr(barnabas, 'CHANGED')\n\n"
        "def test_itself():\n    assert not hasattr(barnabas, 'CHANGED')\n\n"
        "def test_with_a_fixture(unchanged):\n    pass\n"
    )
    folder = tmp_path / "tree"
    folder.mkdir()
    outcome = Tree(folder).try_without(rule_of(f"{file}::{test}"))
    assert outcome.is_killed == is_killed, outcome.text
    assert outcome.text.partition(":")[0] == ("killed" if is_killed else "BROKEN")


@pytest.mark.parametrize(("method", "word"), [("__init__", "NOT TRIED"), ("try_without", "BROKEN")])
def test_a_rule_that_cannot_be_tried_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str, word: str
) -> None:
    """An error in one of the threads is no success; the exit status is 1."""

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(rule_mutants, "all_rules", lambda: [rule_of("a"), rule_of("b")])
    monkeypatch.setattr(rule_mutants, "pass_with_all_rules", lambda _: True)
    monkeypatch.setattr(Tree, method, fail)
    if method != "__init__":
        monkeypatch.setattr(Tree, "__init__", lambda *_: None)
    assert rule_mutants.main(["--jobs", "1"]) == 1
    output = capsys.readouterr().out
    assert output.count(f"{word}: ") >= 2
    assert "the disk is full" in output
    assert "0 of 2 mutants killed" in output


def test_a_mutant_that_its_test_does_not_notice_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So is a change that does not fit the code; the exit status is 1."""
    test = "test_base_numbers.py"
    name = next(line for line in (rule_mutants.TESTS / test).read_text().splitlines() if line.startswith("def test_"))
    harmless = Rule("harmless", "__init__.py", '"""', '""" ', f"{test}::{name[4:].partition('(')[0]}")
    source = (rule_mutants.SOURCE / "barnabas" / "__init__.py").read_text()
    harmless = harmless._replace(old=source, new=source + "\n")
    stale = harmless._replace(text="stale", old="what stands nowhere")
    monkeypatch.setattr(rule_mutants, "all_rules", lambda: [harmless, stale])
    assert rule_mutants.main(["--jobs", "1"]) == 1
    output = capsys.readouterr().out
    assert "LIVES" in output
    assert "OUTDATED" in output
    assert "0 of 2 mutants killed" in output

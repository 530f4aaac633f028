"""Mutants of rules: each rule of security and each limit is taken out of the code, and the test
that is named for it must fail.

``python tests/rule_mutants.py [WORD ...]`` (``make mutants``) tries the rules that have one of the
words in their text, in their module or in their test, all without words. The tables are in
``tests/support/mutated_rules``: what must hold, the module, the change, and a unit test. A change
is made in a copy of the package, one at a time; the test runs in a process of its own, and takes a
second or so. It needs neither Java nor other servers.

The exit status is 1 if a test passes without its rule, if the code has moved on from a change, if a
test fails anyway, or if a rule could not be tried. A mutant is killed only if its test itself
fails: an error before it, as in a fixture, shows nothing.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from support.mutated_rules import Rule, all_rules

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TESTS = ROOT / "tests" / "unit"
_TIMEOUT_S = 120
_FAILED = 1
"""pytest's exit status when tests ran, and some failed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a mutant."""

    rule: Rule
    is_killed: bool
    text: str


def outdated(rule: Rule) -> str | None:
    """Why a rule cannot be tried, if the code or the test is not as its table says."""
    found = (SOURCE / "barnabas" / rule.module).read_text().count(rule.old) if _exists(rule) else 0
    if found != 1:
        return f"{rule.module} holds {rule.old!r} {found} times, not once"
    if rule.old == rule.new:
        return "the change changes nothing"
    file, _, name = rule.test.partition("::")
    name = name.partition("[")[0].rpartition("::")[2]
    inherited = TESTS.parent.glob("support/*_contract.py") if "::Test" in rule.test else ()
    if not any(f"def {name}(" in path.read_text() for path in (TESTS / file, *inherited) if path.exists()):
        return f"there is no test {rule.test}"
    return None


def _exists(rule: Rule) -> bool:
    return (SOURCE / "barnabas" / rule.module).exists()


class Tree:
    """A copy of the package, in which one module at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "src"
        self._report = folder / "report.xml"
        shutil.copytree(SOURCE, self._folder)

    def run(self, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
        """Run unit tests against the copy."""
        self._report.unlink(missing_ok=True)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", str(_TIMEOUT_S),
             "--junit-xml", str(self._report), *(str(TESTS / test) for test in tests)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(self._folder)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip

    def try_without(self, rule: Rule) -> Outcome:
        """Whether the rule's test fails without the rule."""
        if (why := outdated(rule)) is not None:
            return Outcome(rule, False, f"OUTDATED: {why}")
        module = self._folder / "barnabas" / rule.module
        whole = module.read_text()
        module.write_text(whole.replace(rule.old, rule.new))
        try:
            done = self.run([rule.test])
        finally:
            shutil.copy2(SOURCE / "barnabas" / rule.module, module)
        if done.returncode == _FAILED and self._has_failure():
            return Outcome(rule, True, "killed")
        last = (done.stdout.strip().splitlines() or [""])[-1]
        return Outcome(rule, False, "LIVES" if done.returncode == 0 else f"BROKEN: {last}")

    def _has_failure(self) -> bool:
        """Whether a test of the last run failed itself, not what it needs: pytest
        calls that an error."""
        return self._report.exists() and ElementTree.parse(self._report).find(".//testcase/failure") is not None


def try_all(rules: Sequence[Rule], jobs: int) -> list[Outcome]:
    """Try each, several at a time; a line and an outcome for each, though trying it fails."""
    waiting: queue.SimpleQueue[Rule] = queue.SimpleQueue()
    for rule in rules:
        waiting.put(rule)
    outcomes: list[Outcome] = []
    problems: list[str] = []

    def work(folder: Path) -> None:
        try:
            folder.mkdir()
            tree = Tree(folder)
        except Exception as error:
            problems.append(repr(error))
            return
        while True:
            try:
                rule = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            try:
                outcome = tree.try_without(rule)
            except Exception as error:
                outcome = Outcome(rule, False, f"BROKEN: {error!r}")
            outcomes.append(outcome)
            print(f"{outcome.text} ({time.monotonic() - began:.1f} s): {rule.text} [{rule.module}]", flush=True)

    with tempfile.TemporaryDirectory(prefix="barnabas-mutants-") as folder:
        threads = [threading.Thread(target=work, args=(Path(folder) / str(number),)) for number in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    tried = {outcome.rule for outcome in outcomes}
    return outcomes + [Outcome(rule, False, f"NOT TRIED: {problems}") for rule in rules if rule not in tried]


def pass_with_all_rules(rules: Sequence[Rule]) -> bool:
    """Whether the tests pass while nothing is changed: a test that fails anyway shows nothing."""
    with tempfile.TemporaryDirectory(prefix="barnabas-mutants-") as folder:
        done = Tree(Path(folder)).run(sorted({rule.test for rule in rules if outdated(rule) is None}))
    if done.returncode:
        print(done.stdout, end="")
    return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status is 1 if a mutant lives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="in a rule, its module or its test; all without")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    options = parser.parse_args(arguments)
    chosen = [
        rule for rule in all_rules()
        if not options.words or any(word in f"{rule.text} {rule.module} {rule.test}" for word in options.words)
    ]  # fmt: skip
    if not chosen:
        parser.error("no rule has one of these words")
    if not pass_with_all_rules(chosen):
        print("the tests fail while all rules are there: mend them first")
        return 1
    outcomes = try_all(chosen, options.jobs)
    living = [outcome for outcome in outcomes if not outcome.is_killed]
    for outcome in living:
        print(
            f"{outcome.text}: {outcome.rule.text}\n  {outcome.rule.module}: {outcome.rule.old!r} -> {outcome.rule.new!r}"
        )
        print(f"  {outcome.rule.test}")
    print(f"{len(outcomes) - len(living)} of {len(outcomes)} mutants killed")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())

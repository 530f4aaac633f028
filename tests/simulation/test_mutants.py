"""The mutants fit the code that they damage, and a sample of them is caught.

``make mutants`` tries all."""

from collections.abc import Callable

import mutants
import pytest
from mutants import MUTANTS
from mutation import SEEDS, WHEN_ALL_SEEDS_RUN_S, run_in_own_process, run_mutants, sample_of_commit
from replication_mutants import REPLICATION_MUTANTS

from simulation.scenarios.runs import Result

SAMPLE = 6


def do_nothing() -> None:
    """A mutant like the code."""


class Seeds:
    """Those of a plan; some of them notice the mutant."""

    def __init__(self, *noticing: int) -> None:
        self.ran: list[int] = []
        self._noticing = noticing

    def run(self, mutant: Callable[[], None], seed: int) -> Result:
        self.ran.append(seed)
        violations = [f"seed {seed} saw it"] if seed in self._noticing else []
        return Result(seed, "", violations, {}, 0.0, 0, {}, None)


def test_all_mutants_fit_the_code() -> None:
    """Where the code has moved on, the output says what is missing."""
    done = run_in_own_process(mutants.__file__, "--fit")
    assert sorted(done.stdout.splitlines()) == sorted(f"{mutant.__name__} fits" for mutant in MUTANTS)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("options", "noticing", "ran", "status", "text"),
    [
        ("", (4, 6), range(1, 5), 0, "caught by 1 of 4 seeds, 4: seed 4 saw it"),
        ("", (60,), SEEDS, 0, "caught by 1 of 60 seeds, 60: seed 60 saw it"),
        ("", (61,), SEEDS, 1, "SURVIVES 60 seeds"),
        ("--seeds 3-9 --enough 2", (4, 6, 7), range(3, 7), 0, "caught by 2 of 4 seeds, 4, 6: seed 4 saw it"),
        ("--seeds 3-9 --enough 2", (8,), range(3, 10), 0, "caught by 1 of 7 seeds, 8: seed 8 saw it"),
        ("--seeds 5 --intact", (), range(5, 6), 0, "holds in 1 seeds"),
        ("--seeds 5-7 --intact", (6,), range(5, 7), 1, "FAILS in 1 of 2 seeds, 6: seed 6 saw it"),
    ],
)
def test_seeds_run_until_one_notices_or_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: str,
    noticing: tuple[int, ...],
    ran: range,
    status: int,
    text: str,
) -> None:
    """A mutant that shows in few seeds costs more of them, and is no failure; one that shows in
    none is."""
    seeds = Seeds(*noticing)
    monkeypatch.setattr("sys.argv", ["mutants.py", "--here", *options.split(), "do_nothing"])
    assert run_mutants([do_nothing], seeds.run) == status
    assert seeds.ran == list(ran)
    assert capsys.readouterr().out == f"{text}\n"


@pytest.mark.timeout(WHEN_ALL_SEEDS_RUN_S)
@pytest.mark.parametrize("mutant", sample_of_commit(MUTANTS, SAMPLE), ids=lambda mutant: mutant.__name__)
def test_a_mutant_of_this_commits_sample_is_noticed(mutant: Callable[[], None]) -> None:
    """One of the seeds that can show the defect does; the same code without the defect
    passes them all elsewhere."""
    done = run_in_own_process(mutants.__file__, "--here", mutant.__name__)
    assert done.returncode == 0, done.stdout


def test_replication_has_at_least_ten_mutants() -> None:
    """Each part of the protocol that keeps records safe is damaged by one of them;
    none gets lost unseen."""
    assert len(REPLICATION_MUTANTS) >= 10

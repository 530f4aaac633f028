"""Ways to put a defect into the code in memory, and the programs that run such mutants.

Each way fails loudly where the code is not as the mutant expects it. A mutant patches its process
for good, so each runs in a process of its own. Tests start such a process and do not fork: pytest's
workers have threads, and a fork would keep their locks.
"""

import argparse
import inspect
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(
    0, str(Path(__file__).parents[1])
)  # a program of mutants finds `simulation` and `support`, as pytest does

from simulation.scenarios.runs import Result

__all__ = [
    "SEEDS",
    "WHEN_ALL_SEEDS_RUN_S",
    "MutantOutdatedError",
    "Outcome",
    "patch",
    "rewrite",
    "run_in_own_process",
    "run_mutants",
    "run_seeds",
    "sample_of_commit",
]

SEEDS = range(1, 61)
"""The seeds that are tried at most. A plan should show its mutant in a third of its seeds, whatever
else changes in the code; then hardly any mutant needs more than ten, and none needs sixty."""
WHEN_ALL_SEEDS_RUN_S = 3600
"""No time-out before the name of a mutant that survives is printed, even on a slow machine."""


class MutantOutdatedError(Exception):
    """The code moved on; the mutant must follow it."""


def patch(owner: Any, name: str, value: object) -> None:
    """Replace a class's or a module's function, also where other modules imported it."""
    original = inspect.getattr_static(owner, name, None)
    if original is None:
        raise MutantOutdatedError(f"{owner.__name__} has no {name}")
    _check_parameters(f"{owner.__name__}.{name}", original, value)
    if inspect.ismodule(owner):
        for module in list(sys.modules.values()):
            if (
                module is not None
                and module.__name__.startswith("barnabas")
                and getattr(module, name, None) is original
            ):
                setattr(module, name, value)
    setattr(owner, name, value)


def _check_parameters(name: str, original: object, value: object) -> None:
    """A defect that cannot be called as the function can is an error of its own, which every seed
    would notice."""
    if not (inspect.isfunction(original) and inspect.isfunction(value)):
        return
    parameters = inspect.signature(original).parameters.values()
    by_position = [each for each in parameters if each.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    by_name = {each.name: None for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        inspect.signature(value).bind(*[None] * len(by_position), **by_name)
    except TypeError as error:
        raise MutantOutdatedError(f"the defect of {name} cannot be called as the function is: {error}") from None


def rewrite(owner: Any, name: str, old: str, new: str) -> None:
    """Compile a function again with ``old`` replaced by ``new`` in its source, where it
    must stand exactly once."""
    original = inspect.getattr_static(owner, name, None)
    if original is None:
        raise MutantOutdatedError(f"{owner.__name__} has no {name}")
    function: Callable[..., Any] = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise MutantOutdatedError(f"{owner.__name__}.{name} holds {old!r} {source.count(old)} times, not once")
    namespace = function.__globals__
    before = namespace.get(name)
    # Our own source.
    exec(compile(source.replace(old, new), f"<mutant of {name}>", "exec"), namespace)
    mutated = namespace.pop(name)
    if before is not None:
        namespace[name] = before  # `patch` finds the original by identity
    patch(owner, name, mutated)


def run_mutants(mutants: Iterable[Callable[[], None]], run: Callable[[Callable[[], None], int], Result]) -> int:
    """The main program of a file of mutants: run all, or those named; the exit
    status is 1 if one survives.

    ``run`` runs one seed under the plan that can show the mutant. A mutant is run on seed after
    seed until one notices it, so only a mutant that no seed notices costs all of them.
    """
    parser = argparse.ArgumentParser(description="Run mutants; each must be noticed by a seed.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a mutant; all without")
    parser.add_argument("--seeds", type=_seeds, default=SEEDS, metavar="FIRST-LAST", help="those to run (default 1-60)")
    parser.add_argument("--enough", type=int, default=1, metavar="N", help="stop when N seeds have noticed (default 1)")
    parser.add_argument("--intact", action="store_true", help="run the plans without the defects; no seed may complain")
    parser.add_argument("--here", action="store_true", help="run the one mutant named in this process")
    parser.add_argument("--fit", action="store_true", help="only put each into the code, in a process of its own")
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants if not options.names or mutant.__name__ in options.names]
    if options.fit:
        return 1 if [mutant for mutant in chosen if not _fits(mutant)] else 0
    if options.here:
        (mutant,) = chosen
        try:
            if not options.intact:
                mutant()
        except MutantOutdatedError as error:
            print(f"OUTDATED: {error}")
            return 1
        outcome = run_seeds(lambda seed: run(mutant, seed), options.seeds, options.enough)
        print(outcome.text(intact=options.intact))
        return 0 if bool(outcome.noticed) != options.intact else 1
    bad = 0
    passed_on = ["--seeds", f"{options.seeds[0]}-{options.seeds[-1]}", "--enough", str(options.enough)]
    passed_on += ["--intact"] if options.intact else []
    for mutant in chosen:
        began = time.monotonic()
        done = run_in_own_process(sys.argv[0], "--here", *passed_on, mutant.__name__)
        bad += done.returncode != 0
        print(f"{mutant.__name__} ({time.monotonic() - began:.1f} s): {done.stdout.strip()}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} {'plans hold' if options.intact else 'mutants caught'}")
    return 1 if bad or not chosen else 0


@dataclass(slots=True)
class Outcome:
    """What the seeds of a mutant found."""

    ran: int
    noticed: list[int]
    words: str
    """The first violation."""

    def text(self, *, intact: bool) -> str:
        """A line about the mutant, or with ``intact`` about the code without it."""
        if not self.noticed:
            return f"{'holds in' if intact else 'SURVIVES'} {self.ran} seeds"
        seeds = ", ".join(map(str, self.noticed))
        return f"{'FAILS in' if intact else 'caught by'} {len(self.noticed)} of {self.ran} seeds, {seeds}: {self.words}"


def run_seeds(run: Callable[[int], Result], seeds: Iterable[int], enough: int) -> Outcome:
    """Run seeds until enough of them have noticed the mutant."""
    outcome = Outcome(0, [], "")
    for seed in seeds:
        violations = run(seed).violations
        outcome.ran += 1
        if violations:
            outcome.noticed.append(seed)
            outcome.words = outcome.words or violations[0].splitlines()[0]
        if len(outcome.noticed) >= enough:
            break
    return outcome


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _fits(mutant: Callable[[], None]) -> bool:
    """Whether the code is as the mutant expects it; prints a line that says it.

    The process is forked, which saves the imports: this program has no other thread.
    """
    child = os.fork()
    if child == 0:
        said = "fits"
        try:
            mutant()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(1, f"{mutant.__name__} {said}\n".encode())
        os._exit(said != "fits")
    return os.waitpid(child, 0)[1] == 0


def run_in_own_process(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a file of mutants; its standard output holds its errors too."""
    return subprocess.run(
        [sys.executable, program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def sample_of_commit(mutants: Iterable[Callable[[], None]], count: int) -> list[Callable[[], None]]:
    """Another choice for each commit, the same in all processes of a run."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # the sources without their history
        commit = "no commit"
    return random.Random(commit).sample(list(mutants), count)

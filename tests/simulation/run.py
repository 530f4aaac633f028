"""Run simulated clusters: ``python tests/simulation/run.py --seeds 1-200``.

With ``--ensemble`` ensembles alone, with ``--transactions`` clusters with transactional producers.

Each failing seed is printed with what was wrong and with the command that runs it again;
``--trace FILE`` writes all its events to a file. The exit status is 1 if a seed failed.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# The folder in which pytest finds these packages, too.
sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.scenarios.ensemble_scenario import run_ensemble_seed
from simulation.scenarios.runs import Result
from simulation.scenarios.scenario import run_seed
from simulation.scenarios.transaction_scenario import run_transaction_seed

_SHOWN_VIOLATIONS = 3
_CLUSTER = "make simulate SEEDS="
_TRANSACTIONS = "python tests/simulation/run.py --transactions --seeds "
_ENSEMBLE = "python tests/simulation/run.py --ensemble --seeds "


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/simulation/run.py", description="Run simulated clusters")
    parser.add_argument("--seeds", default="1-50", help="one seed, or FIRST-LAST (default 1-50)")
    parser.add_argument("--jobs", type=int, default=1, help="seeds that run at the same time")
    parser.add_argument("--ensemble", action="store_true", help="ensembles of coordination servers, without brokers")
    parser.add_argument("--transactions", action="store_true", help="clusters with transactional producers")
    parser.add_argument("--trace", help="with one seed: write all that happened to this file")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    run, again = (run_ensemble_seed, _ENSEMBLE) if options.ensemble else (run_seed, _CLUSTER)
    if options.transactions:
        run, again = run_transaction_seed, _TRANSACTIONS
    if options.trace:
        result = run(seeds[0], keep_trace=True)
        Path(options.trace).write_text("\n".join(result.trace or ()) + "\n", encoding="utf-8")
        return _summarize([result], 0.0)
    began = time.monotonic()
    results: list[Result] = []
    if options.jobs > 1:
        with ProcessPoolExecutor(options.jobs) as pool:
            for result in pool.map(run, seeds):
                results.append(_report(result, again))  # noqa: PERF401  # reported as they come
    else:
        results.extend(_report(run(seed), again) for seed in seeds)
    return _summarize(results, time.monotonic() - began)


def _report(result: Result, again: str) -> Result:
    """Print what failed, when it fails."""
    if result.violations:
        _print(f"seed {result.seed} failed; faults: {_counts(result.faults)}")
        for violation in result.violations[:_SHOWN_VIOLATIONS]:
            _print("  " + violation.replace("\n", "\n    "))
        _print(f"  run it again: {again}{result.seed}")
    return result


def _summarize(results: list[Result], took_s: float) -> int:
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
        faults.update(result.faults)
    failed = [result.seed for result in results if result.violations]
    virtual_s = sum(result.virtual_s for result in results)
    _print(f"{len(results)} seeds, {virtual_s:.0f} s of virtual time in {took_s:.1f} s")
    _print(f"seen: {_counts(counts)}")
    _print(f"faults: {_counts(faults)}")
    if len(results) == 1:
        _print(f"trace: {results[0].trace_lines} lines, hash {results[0].digest}")
    _print(f"failed: {', '.join(map(str, failed)) or 'none'}")
    return 1 if failed else 0


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items())) or "none"


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())

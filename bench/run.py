#!/usr/bin/env python3
"""Figures of Barnabas, side by side with Apache Kafka where the reference systems are at hand.

usage: bench/run.py
           [--only load,start,topics,restart,idle,replicated,failover,rolling,catchup]
           [--mb 300] [--catchup-mb 1000] [--alone] [--output json] [--note TEXT]

Each system runs by itself, one after the other on the same machine; the ratio is ours to theirs.
The load programs and the reference systems are looked for in ../shared (or $BARNABAS_SHARED);
without them only the figures that need neither are measured, and the rest is named as not measured.
``--only load --output json > docs/pictures/speed.json`` is for the README's table, which
``docs/generate.py`` then writes.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable

import replicated
import single
from systems import HAS_LOAD, HAS_REFERENCE, OURS, THEIRS, print_comparison

Step = Callable[[], dict[str, float]]

NEEDS_LOAD = ("load", "topics", "idle", "replicated", "failover")
STEPS = ("load", "start", "topics", "restart", "idle", "replicated", "failover", "rolling", "catchup")


def steps_of(system: str, mb: int, catch_up_mb: int) -> dict[str, Step]:
    """What is measured of a system; start and restart are of ours alone."""
    steps: dict[str, Step] = {
        "load": lambda: single.measure_load(system, mb),
        "topics": lambda: single.measure_topics(system),
        "idle": lambda: single.measure_idle(system),
        "replicated": lambda: replicated.measure_replicated(system, mb),
        "failover": lambda: replicated.measure_failover(system),
        "rolling": lambda: replicated.measure_rolling(system),
        "catchup": lambda: replicated.measure_catch_up(system, catch_up_mb),
    }
    if system == OURS:
        steps |= {"start": single.measure_start, "restart": single.measure_restart}
    return {name: step for name, step in steps.items() if HAS_LOAD or name not in NEEDS_LOAD}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=300, help="megabytes a load figure moves")
    parser.add_argument("--catchup-mb", type=int, default=1000, help="megabytes that a replica is behind")
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--alone", action="store_true", help="do not run the reference systems")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--note", default="", help="what else is to be known of this machine, for --output json")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    if unknown := set(wanted) - set(STEPS):
        parser.error(f"unknown in --only: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    results: dict[str, dict[str, float]] = {OURS: {}, THEIRS: {}}
    for system in [OURS, THEIRS] if HAS_REFERENCE and not arguments.alone else [OURS]:
        for name, step in steps_of(system, arguments.mb, arguments.catchup_mb).items():
            if name in wanted:
                print(f"{system}: {name} ...", file=sys.stderr, flush=True)
                results[system].update(step())
    if not HAS_LOAD:
        print(f"not measured: {', '.join(NEEDS_LOAD)} (no load programs at ../shared/measure)", file=sys.stderr)
    if arguments.output == "json":
        on = f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
        print(json.dumps({"measured_on": on + (arguments.note and f"; {arguments.note}"), **results}, indent=2))
        return 0
    print_comparison(results, width=48, digits=3)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Run every lab, as many at a time as there are processors.

Show what failed, and end with 1 if one did. ``python run_all.py [NAME ...]`` runs some of them.
Each takes free ports, and the output of each is in ``build/labs``.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
OUTPUT = FOLDER.parents[1] / "build" / "labs"
NO_LABS = {"lab", "run_all"}


def run_lab(name: str) -> tuple[str, int, float]:
    """Run one lab; its name, exit code and seconds."""
    began = time.monotonic()
    with (OUTPUT / f"{name}.txt").open("wb") as output:
        done = subprocess.run(
            [sys.executable, str(FOLDER / f"{name}.py")],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PORT": "0"},
            check=False,
        )
    return name, done.returncode, time.monotonic() - began


def main(names: list[str]) -> int:
    """Run those named, or all."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    chosen = names or sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NO_LABS)
    began = time.monotonic()
    failed = []
    try:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for name, code, seconds in pool.map(run_lab, chosen):
                print(f"{'ok    ' if code == 0 else 'failed'} {name:<22} {seconds:5.1f} s", flush=True)
                if code:
                    failed.append(name)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        return 130
    for name in failed:
        print(f"\n{name}, from {OUTPUT}/{name}.txt:\n{(OUTPUT / f'{name}.txt').read_text()}")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} labs held, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

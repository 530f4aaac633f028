#!/usr/bin/env python3
"""Follow the README as a stranger does, in an environment of its own, and say how
long each step takes.

usage: bench/first_hour.py [--without-pipeline]

Install, start a cluster, send the first record, pass the first test, run the first pipeline: with
the blocks of README.md as they stand. It takes the usual ports (9092, 2181), the network for pip,
and up to 500 MB in a temporary folder.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


class Stranger:
    """A shell in an environment that has nothing but Python, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("PATH", "LANG", "TERM", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "SSL_CERT_FILE")
        self._environment = {name: os.environ[name] for name in names if name in os.environ}
        self._environment |= {"HOME": str(folder), "PATH": f"{folder}/venv/bin:{os.environ['PATH']}"}

    def do(self, what: str, *commands: str, place: Path | None = None) -> str:
        """Type some commands; what they print. Ends everything if one of them fails."""
        began = time.perf_counter()
        shown = ""
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=place or self.folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            shown += done.stdout
            if done.returncode:
                sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout}")
        print(f"| {what} | {time.perf_counter() - began:.1f} |", flush=True)
        return shown


def block(language: str, contains: str) -> str:
    """The README's block of a language that has this in it."""
    found = [each for each in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if contains in each]
    assert len(found) == 1, (contains, len(found))
    return str(found[0])


def commands(text: str) -> list[str]:
    """What stands after the prompts of a console block."""
    return re.findall(r"^\$ (.*)$", text, re.MULTILINE)


def main() -> int:
    """The first hour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-pipeline", action="store_true", help="leave out Spark, whose packages are large")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-hour-") as name:
        stranger = Stranger(Path(name))
        print("| step | seconds |\n|---|---|", flush=True)
        make, install, up = commands(block("console", "pip install .\n"))
        stranger.do("an environment", make)
        stranger.do("`pip install .`", install, place=ROOT)
        stranger.do("`barnabas up --detach`", up)
        try:
            (stranger.folder / "first.py").write_text(block("python", "for record in consumer:"))
            shown = stranger.do("the first record", "python first.py")
            assert shown == "table-7 one espresso\n", shown
            (stranger.folder / "test_orders.py").write_text(block("python", "def test_an_order_arrives"))
            stranger.do("`pip install pytest`", "pip install -q pytest")
            shown = stranger.do("the first test", "pytest -q test_orders.py")
            assert "1 passed" in shown, shown
            if not given.without_pipeline:
                (pip,) = commands(block("console", "pip install '.[pipelines]'"))
                stranger.do(f"`{pip}`", pip, place=ROOT)
                shown = stranger.do("the first pipeline", *commands(block("console", "barnabas pipeline new")))
                assert "(1, None, 'book', 120.0, 'payments', 0, 0, 'large')" in shown, shown
        finally:
            stranger.do("`barnabas down`", "barnabas down")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draw the README's picture of a broker that stops: the lab's own output, as a terminal shows it, in an SVG.

``python docs/terminal_recording.py`` runs ``examples/labs/stop_a_broker.py`` and writes ``docs/pictures/stop-a-broker.svg``.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
LAB = ROOT / "examples" / "labs" / "stop_a_broker.py"
PICTURE = ROOT / "docs" / "pictures" / "stop-a-broker.svg"
WIDTH = 118
LINES = 42


def styled(line: str) -> Text:
    """A line in the colours that the lab has on a terminal."""
    if line.startswith("$ "):
        return Text(line, "cyan")
    if line.startswith("ok "):
        return Text("ok", "green") + Text(line[2:])
    if re.match(r"\d\. ", line):
        return Text(line, "bold")
    return Text(line)


def main() -> int:
    """Record and write."""
    done = subprocess.run([sys.executable, str(LAB)], capture_output=True, text=True, env=os.environ, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        return done.returncode
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115  # it lives as long as we
    shown = [line for line in done.stdout.splitlines() if not line.startswith("$ DATA=")]  # a folder of this machine
    for line in shown[:LINES]:
        console.print(styled(line[:WIDTH]))
    PICTURE.parent.mkdir(exist_ok=True)
    console.save_svg(str(PICTURE), title="python examples/labs/stop_a_broker.py", theme=DIMMED_MONOKAI)
    print(f"wrote {PICTURE.relative_to(ROOT)}, {PICTURE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

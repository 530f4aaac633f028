"""Draw the documentation's pictures of terminals, in SVG, from what commands really print.

``python docs/terminal_recording.py`` runs ``examples/labs/stop_a_broker.py``, and ``up``, ``tail`` and ``overview`` on a small
cluster, and writes ``docs/pictures/*.svg``.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from barnabas.client import Consumer, Producer
from barnabas.client.admin_connection import AdminConnection
from barnabas.client.topics import create_topic

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
LAB = ROOT / "examples" / "labs" / "stop_a_broker.py"
WIDTH = 118
LINES = 42
BARNABAS = [sys.executable, "-m", "barnabas"]
ORDERS = [("table-7", "one espresso"), ("table-2", "two teas"), ("table-7", "the bill"), ("table-4", "one cake")]


def styled(line: str) -> Text:
    """A line in the colours that the lab has on a terminal."""
    if line.startswith("$ "):
        return Text(line, "cyan")
    if line.startswith("ok "):
        return Text("ok", "green") + Text(line[2:])
    if re.match(r"\d\. ", line):
        return Text(line, "bold")
    return Text(line)


def draw(name: str, title: str, lines: list[str], width: int = WIDTH) -> None:
    """Write a picture."""
    console = Console(record=True, width=width, file=open(os.devnull, "w"))  # noqa: SIM115  # it lives as long as we
    for line in lines:
        console.print(styled(line[:width]))
    PICTURES.mkdir(exist_ok=True)
    picture = PICTURES / f"{name}.svg"
    console.save_svg(str(picture), title=title, theme=DIMMED_MONOKAI)
    print(f"wrote {picture.relative_to(ROOT)}, {picture.stat().st_size:,} bytes")


def lab() -> list[str]:
    """What the lab prints; raises `CalledProcessError` if it fails."""
    done = subprocess.run([sys.executable, str(LAB)], capture_output=True, text=True, env=os.environ, check=True)
    return [line for line in done.stdout.splitlines() if not line.startswith("$ DATA=")]  # a folder of this machine


def first_steps() -> list[str]:
    """``up``, ``tail``, ``overview`` and ``down``, one after the other."""
    shown: list[str] = []

    def show(command: str, *options: str) -> None:
        done = subprocess.run(
            [*BARNABAS, *command.split()[1:], *options], capture_output=True, text=True, check=True, timeout=60
        )
        shown.extend([f"$ {command}", *(done.stdout + done.stderr).rstrip().splitlines(), ""])

    with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
        show("barnabas up --brokers 3 --detach", "--data-dir", folder)
        try:
            servers = "localhost:9092"
            with AdminConnection(servers) as admin:
                create_topic(admin, "orders", partitions=3, replication_factor=3, configs={})
            with Producer({"bootstrap.servers": servers}) as producer:
                for key, value in ORDERS:
                    producer.send("orders", value, key=key)
            settings = {"bootstrap.servers": servers, "group.id": "kitchen", "auto.offset.reset": "earliest"}
            with Consumer({**settings, "enable.auto.commit": "false"}) as consumer:
                consumer.subscribe(["orders"])
                records = [consumer.poll(30) for _ in ORDERS[1:]]
                assert None not in records
                consumer.poll(0)
                consumer.commit()
            tail = subprocess.Popen(
                [*BARNABAS, "tail", "orders", "--last", "4"], stdout=subprocess.PIPE, text=True, env=os.environ
            )
            assert tail.stdout is not None
            lines = [tail.stdout.readline().rstrip() for _ in ORDERS]
            time.sleep(0.2)
            tail.terminate()
            shown.extend(["$ barnabas tail orders --last 4", *lines, "^C", ""])
            show("barnabas overview")
        finally:
            show("barnabas down", "--data-dir", folder)
    return [line.replace(folder, "/tmp/barnabas") for line in shown]


def main() -> int:
    """Record and write."""
    try:
        draw("stop-a-broker", "python examples/labs/stop_a_broker.py", lab()[:LINES])
        draw("first-steps", "barnabas up, tail, overview", first_steps())
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\n{error.stdout}{error.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

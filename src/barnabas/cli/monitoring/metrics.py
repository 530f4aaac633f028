"""``barnabas metrics``: the metrics of all servers, dashboards for Grafana, and alert rules for
Prometheus.

In Kafka: no command; its distributions of others bring such files.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.cli.options.helpful_parser import HelpfulParser
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.colours import print_warning
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print
from barnabas.metrics.alerts import ALERTS
from barnabas.metrics.catalog import SERVERS
from barnabas.metrics.dashboards import DASHBOARDS
from barnabas.metrics.grafana import dashboard_json
from barnabas.metrics.rule_file import rules_yaml

__all__ = ["RULES_FILE", "main"]

RULES_FILE = "barnabas.rules.yml"


def main(argv: list[str]) -> int:
    """List the metrics, or write dashboards or rules to a folder."""
    parser = ToolParser("metrics", "List the metrics of all servers, and write dashboards and alert rules from them.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=HelpfulParser)
    listed = actions.add_parser("list", help="print all metrics with their kinds and labels")
    add_output_option(listed)
    for name, what in (
        ("dashboards", "dashboards for Grafana, one file each"),
        ("rules", "alert rules for Prometheus"),
    ):
        written = actions.add_parser(name, help=f"write {what}")
        written.add_argument(
            "directory",
            metavar="DIR",
            help="the folder, which is made; a file of the name that differs is kept as NAME.old",
        )
    given = parser.parse_args(argv)
    if given.action == "list":
        return _list(given)
    files = _dashboard_files() if given.action == "dashboards" else {RULES_FILE: rules_yaml(ALERTS)}
    return _write(Path(given.directory), files)


def _list(given: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = [
        {
            "name": metric.name,
            "kind": metric.kind,
            "labels": list(metric.labels),
            "server": server.name,
            "help": metric.help_text,
        }
        for server in SERVERS
        for metric in server.metrics
    ]
    if given.output == "json":
        print_json(rows)
    else:
        lines = [[row["name"], row["kind"], ",".join(row["labels"]) or "-", row["server"]] for row in rows]
        print(aligned(["METRIC", "KIND", "LABELS", "SERVER"], lines))
    return 0


def _dashboard_files() -> dict[str, str]:
    return {f"{dashboard.uid}.json": dashboard_json(dashboard) for dashboard in DASHBOARDS}


def _write(directory: Path, files: Mapping[str, str]) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            _replace(directory / name, text.encode())
    except OSError as error:
        raise BarnabasError(
            f"{error.filename or directory} cannot be written: {error.strerror}; choose another folder"
        ) from None
    for name in files:
        print(directory / name)
    return 0


def _replace(path: Path, data: bytes) -> None:
    """Write it whole or not at all. What stood there with other content, which may be somebody's
    work, is kept beside."""
    if path.exists() and path.read_bytes() != data:
        kept = path.with_name(f"{path.name}.old")
        shutil.copy2(path, kept)
        print_warning(f"{path} had other content, which is kept as {kept}")
    OsFiles().write_atomically(str(path), data)

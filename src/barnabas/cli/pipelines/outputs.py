"""The actions of ``barnabas pipeline`` on what flows have made: dashboard, search,
train, models."""

import argparse
import contextlib
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.cli.output.standard_streams import outlive_output
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.cli.pipelines.waiting import WaitDisplay
from barnabas.pipelines.outputs.declared import SearchSink
from barnabas.pipelines.specification import spec
from barnabas.pipelines.specification.model import Model
from barnabas.pipelines.values.texts import json_values

__all__ = ["OUTPUT_ACTIONS", "add_output_actions"]


def add_output_actions(commands: Any) -> list[argparse.ArgumentParser]:
    """Declares the actions; the caller adds what all actions have, such as FILE and --set."""
    dashboard = commands.add_parser("dashboard", help="serve a live page with charts over a flow's results")
    dashboard.add_argument("--host", default="127.0.0.1", help="the address to serve on (default: %(default)s)")
    dashboard.add_argument("--port", type=int, default=8050, help="the port, 0 for any (default: %(default)s)")
    dashboard.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers reach the page, beside those of this machine; may be repeated",
    )
    search = commands.add_parser("search", help="find rows in a flow's full-text index")
    search.add_argument("--limit", type=int, default=10, help="how many rows to show (default: %(default)s)")
    train = commands.add_parser("train", help="train the flow's model from all that is in its topics now")
    train.add_argument(
        "--keep", action="store_true", help="keep the version that flows use now; see models --use for the change"
    )
    models = commands.add_parser("models", help="list the versions of the flow's model, or choose one")
    models.add_argument("--use", type=int, metavar="VERSION", help="the version that flows use from now on")
    return [dashboard, search, train, models]


def add_words(search: argparse.ArgumentParser) -> None:
    """What follows FILE in a search."""
    search.add_argument("words", metavar="WORDS", nargs="+", help='words, "a phrase", prefix*, AND, OR, NOT')


def _dashboard(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    from barnabas.pipelines.packages import require_outputs

    require_outputs("plotly", "duckdb")
    from barnabas.pipelines.dashboard.server import Dashboard, DashboardServer

    dashboard = Dashboard(flow)
    try:
        server = DashboardServer(dashboard, arguments.host, arguments.port, arguments.allowed_host)
    except OSError as error:
        raise ConfigError(f"cannot serve on {arguments.host}:{arguments.port}: {error.strerror}") from error
    outlive_output()
    print(f"ready {server.url}")
    with contextlib.suppress(KeyboardInterrupt), server:
        server.serve_forever()
    return 0


def _search(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    from barnabas.pipelines.outputs.search import search_index

    sink = next((each for each in flow.sinks if isinstance(each, SearchSink)), None)
    if sink is None:
        raise ConfigError(f'the flow {flow.name} has no sink of type "search"')
    hits = search_index(sink, " ".join(arguments.words), arguments.limit)
    if arguments.output == "json":
        print_json([{"row": json_values(hit.row), "snippet": hit.snippet, "score": hit.score} for hit in hits])
        return 0
    for hit in hits:
        key = ", ".join(f"{name} {hit.row[name]}" for name in sink.key)
        print(f"{key}: {hit.snippet}")
    if not hits:
        print("no row was found", file=sys.stderr)
    return 0 if hits else 1


def _train(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    from barnabas.pipelines.models.registry import ModelFolder
    from barnabas.pipelines.models.run import train_flow

    _model(flow)
    with WaitDisplay() as waits:
        version = train_flow(flow, waits.show)
    folder = ModelFolder(_model(flow).path)
    is_first = not (folder.path / "current").exists()
    if not arguments.keep or is_first:
        folder.use(version.version)
    if arguments.output == "json":
        print_json({**json_values(asdict(version)), "in_use": folder.current() == version.version})
        return 0
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in version.metrics.items())
    print(f"version {version.version}: {metrics}; {version.rows_trained:,} rows, measured on {version.rows_tested:,}")
    print(f"in use: version {folder.current()}")
    return 0


def _models(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    from barnabas.pipelines.models.registry import ModelFolder

    folder = ModelFolder(_model(flow).path)
    if arguments.use is not None:
        folder.use(arguments.use)
    versions = folder.versions()
    current = folder.current() if (folder.path / "current").exists() else None
    if arguments.output == "json":
        print_json([{**json_values(asdict(each)), "in_use": each.version == current} for each in versions])
        return 0
    for each in versions:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in each.metrics.items())
        print(f"{each.version}{' in use' if each.version == current else ''}: {each.trained_at}, {metrics}")
    return 0


def _model(flow: spec.Flow) -> Model:
    if flow.model is None:
        raise ConfigError(f"the flow {flow.name} has no table [model]")
    return flow.model


OUTPUT_ACTIONS: dict[str, Callable[[spec.Flow, argparse.Namespace], int]] = {
    "dashboard": _dashboard,
    "search": _search,
    "train": _train,
    "models": _models,
}

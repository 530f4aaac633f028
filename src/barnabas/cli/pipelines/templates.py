"""The actions of ``barnabas pipeline`` for those who write flows: new, test."""

import argparse
import contextlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.cli.pipelines.waiting import trial_session
from barnabas.pipelines.specification import spec
from barnabas.pipelines.specification.templates import cases_template, flow_template, template_formats, template_sinks

__all__ = ["add_new_action", "add_test_action", "run_tests", "write_flow"]


def add_new_action(commands: Any) -> argparse.ArgumentParser:
    """Declares ``new``, whose FILE is not there yet."""
    new: argparse.ArgumentParser = commands.add_parser(
        "new", help="write a flow's file to start from, and a test of it"
    )
    new.add_argument("file", metavar="FILE", help="the file to write, such as orders.toml; its name is the flow's")
    new.add_argument(
        "--from", dest="kind", choices=template_formats(), default="json", help="format of the topic's values"
    )
    new.add_argument("--to", dest="sink", choices=template_sinks(), default="sqlite", help="where results go")
    new.add_argument("--topic", help="the topic to read (default: the flow's name)")
    new.add_argument(
        "--bootstrap-servers",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="the cluster that the file names (default: the context's, else localhost:9092)",
    )
    return new


def add_test_action(commands: Any) -> argparse.ArgumentParser:
    """Declares ``test``; the caller adds what all actions on flows have."""
    test: argparse.ArgumentParser = commands.add_parser("test", help="run rows from a file through a flow, and compare")
    test.add_argument("--cases", metavar="FILE", help="the tests (default: NAME.test.toml or .json beside the flow)")
    test.add_argument(
        "--bootstrap-servers",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="a cluster for the tests' topics (default: one that lives as long as the tests)",
    )
    return test


def _servers_of_context() -> str:
    from barnabas.cli.connection.contexts import current_context

    context = current_context()
    return context.bootstrap_server if context else "localhost:9092"


def write_flow(arguments: argparse.Namespace) -> int:
    """Write a flow and its tests.

    Nothing is written if a file is there, or the flow would not be valid."""
    file = Path(arguments.file)
    if file.suffix != ".toml":
        raise ConfigError(f"{file}: give the file a name that ends with .toml")
    tests = file.with_name(f"{file.stem}.test.toml")
    name = file.stem
    text = flow_template(
        name,
        file.name,
        tests.name,
        arguments.kind,
        arguments.sink,
        arguments.bootstrap_servers or _servers_of_context(),
        arguments.topic or name,
    )
    spec.parse(text, file=str(file), environ=os.environ)
    for path in (file, tests):
        if path.exists():
            raise ConfigError(f"{path} is there already; take another name, or remove it")
    try:
        for path, content in ((file, text), (tests, cases_template(file.name, arguments.kind))):
            with path.open("x", encoding="utf-8") as out:
                out.write(content)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror}") from error
    print(f"{file} and {tests} are written: barnabas pipeline test {shlex.quote(str(file))}")
    return 0


def run_tests(flow: spec.Flow, arguments: argparse.Namespace) -> int:
    """Run a flow's tests; 1 if one fails."""
    from barnabas.testing.flow_cases import cases_file, load_cases, run_cases

    cases = load_cases(Path(arguments.cases) if arguments.cases else cases_file(Path(arguments.file)), flow)
    from barnabas.pipelines.packages import require_extra

    require_extra()
    from barnabas.testing.cluster import Cluster

    results = []
    with contextlib.ExitStack() as stack:
        servers = arguments.bootstrap_servers or stack.enter_context(Cluster()).bootstrap_servers
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-flow-test-")))
        spark = stack.enter_context(trial_session(flow))
        for result in run_cases(flow, cases, spark, servers, folder):
            results.append(result)
            if arguments.output == "text":
                print(f"{'FAILED' if result.problem else 'passed'}  {result.name}")
                if result.problem:
                    print(*(f"  {line}" for line in result.problem.splitlines()), sep="\n")
    failed = sum(1 for each in results if each.problem)
    if arguments.output == "json":
        shown = [{"name": each.name, "passed": not each.problem, "problem": each.problem or None} for each in results]
        print_json({"flow": flow.name, "passed": len(results) - failed, "failed": failed, "tests": shown})
    else:
        print(f"{flow.name}: {len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0

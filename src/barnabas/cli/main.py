"""The entry point: find the command's module, run it, and turn its errors into one line and an exit code.

Exit codes: 0 done, 1 failed (a `BarnabasError`, one line on standard error), 2 wrong usage, 3 the answer is incomplete,
130 stopped by Ctrl-C, 141 when the reader of the output is gone (`standard_streams`).
Only the command's own module is imported, so that each tool starts in a fraction of a second.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.cli.colours import print_error
from barnabas.cli.exit_codes import INTERRUPTED
from barnabas.cli.standard_streams import finish_output, forget_output, prepare_streams
from barnabas.cli.terminal import print, print_lines

__all__ = ["COMMANDS", "main"]


class _Command(NamedTuple):
    """A command's module in this package and the line that ``--help`` shows."""

    module: str
    help: str


COMMANDS = {
    "up": _Command("up", "start a whole cluster on this machine and stay until Ctrl-C"),
    "status": _Command("status", "show the clusters that up runs on this machine"),
    "logs": _Command("logs", "show the logs of such a cluster"),
    "down": _Command("down", "stop such a cluster"),
    "zookeeper-server-start": _Command("zookeeper_server_start", "start a coordination server from a zoo.cfg"),
    "server-stop": _Command("server_stop", "stop the brokers that server-start runs on this machine"),
    "server-start": _Command("server_start", "start a broker from a server.properties"),
    "overview": _Command("overview", "show a cluster at a glance: brokers, topics, groups with their lag"),
    "tail": _Command("tail", "show the last records of a topic, and those that come"),
    "cat": _Command("cat", "copy standard input to a topic, or a topic to standard output, as kcat does"),
    "groups": _Command("groups", "list consumer groups, or move one to another place"),
    "topics": _Command("topics", "create, list, describe, alter and delete topics"),
    "console-producer": _Command("console_producer", "send lines from standard input to a topic"),
    "console-consumer": _Command("console_consumer", "print a topic's records"),
    "consumer-groups": _Command("consumer_groups", "list, describe, reset and delete consumer groups"),
    "configs": _Command("configs", "describe and alter configurations of topics and brokers"),
    "get-offsets": _Command("get_offsets", "print offsets of partitions"),
    "delete-records": _Command("delete_records", "let partitions begin at a later offset"),
    "reassign-partitions": _Command("reassign_partitions", "move replicas between brokers and log dirs"),
    "leader-election": _Command("leader_election", "elect preferred leaders, or any where none is in sync"),
    "log-dirs": _Command("log_dirs", "show the replicas in brokers' log dirs"),
    "replica-verification": _Command("replica_verification", "compare all replicas of topics, batch by batch"),
    "broker-api-versions": _Command("broker_api_versions", "show the APIs and versions that each broker offers"),
    "cluster": _Command("cluster", "show the cluster's id and its brokers' addresses"),
    "producer-perf-test": _Command("producer_perf_test", "measure how fast records go to a topic"),
    "consumer-perf-test": _Command("consumer_perf_test", "measure how fast records come from a topic"),
    "e2e-latency": _Command("e2e_latency", "measure how long a record takes from a producer to a consumer"),
    "verifiable-producer": _Command("verifiable_producer", "send numbers, and print what became of each as JSON"),
    "verifiable-consumer": _Command("verifiable_consumer", "read in a group, and print what happens as JSON"),
    "dump-log": _Command("dump_log", "print the contents of log segments, indexes and snapshots"),
    "lost-records": _Command("lost_records", "show the records that a partition's folder lacks, or step over them"),
    "zookeeper-shell": _Command("zookeeper_shell", "look at and change the znode tree"),
    "zookeeper-server-stop": _Command("zookeeper_server_stop", "stop the coordination servers of this machine"),
    "zookeeper-status": _Command("zookeeper_status", "show role, lag, sessions and latency of coordination servers"),
    "zookeeper-dump": _Command("zookeeper_dump", "print the contents of coordination snapshots and logs"),
    "mirror-maker": _Command("mirror_maker", "copy topics from one cluster to another, continuously"),
    "context": _Command("context", "name clusters, so that commands need no --bootstrap-server"),
    "completion": _Command("completion", "print a script that completes commands in bash, zsh or fish"),
    "shims": _Command("shims", "write kafka-topics.sh and the other scripts of Apache's to a folder"),
    "run-class": _Command("run_class", "run a command under the name of Kafka's Java class"),
    "pipeline": _Command("pipeline", "run declared streaming pipelines on Spark"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``barnabas COMMAND ...`` and return the exit code; ``argv`` is without the program's name."""
    if argv is None:
        prepare_streams()
    try:
        return finish_output(_run(list(sys.argv[1:] if argv is None else argv)))
    except KeyboardInterrupt:
        return finish_output(INTERRUPTED)


def _run(arguments: list[str]) -> int:
    try:
        return _dispatch(arguments)
    except BarnabasError as error:
        return _failed(*error.lines)
    except BrokenPipeError:  # the reader of our output is gone (`| head`), which is no error
        return forget_output()
    except OSError as error:  # what commands expect, they report themselves; a full disk may come with any line
        place = f"{error.filename}: " if error.filename else ""
        return _failed(f"{place}{error.strerror or error}")
    except UnicodeError as error:
        return _failed(f"a text cannot be used, for it is not UTF-8: {error}")
    except SystemExit as stop:  # argparse: --help, or wrong usage
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1


def _failed(problem: str, *more: str) -> int:
    code = finish_output(1)  # first what the command has printed
    print_error(f"Error: {problem}", *more)
    return code


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print_lines(_usage(), file=sys.stderr)
        return 2
    if arguments[0] == "help" and arguments[1:]:
        # `help topics`, `help pipeline run`
        arguments = [*arguments[1:], "--help"]
    name = arguments[0]
    if name in ("-h", "--help", "help"):
        print_lines(_usage())
        return 0
    if name in ("-V", "--version", "version"):
        from barnabas import __version__

        print(f"barnabas {__version__}")
        return 0
    command = COMMANDS.get(name)
    if command is None or not _exists(command):
        print_error(f"barnabas: there is no command {name!r}{_suggestion(name)}")
        return 2
    code: int = import_module(f"barnabas.cli.{command.module}").main(arguments[1:])
    return code


def _exists(command: _Command) -> bool:
    return find_spec(f"barnabas.cli.{command.module}") is not None


def _usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [
        "Usage: barnabas COMMAND [OPTION ...]",
        "",
        "A messaging platform that speaks Apache Kafka's and Apache ZooKeeper's protocols.",
        "",
        "Commands:",
        *(f"  {name:<{width}}{command.help}" for name, command in COMMANDS.items() if _exists(command)),
        "",
        "barnabas help COMMAND lists a command's options, which are those of Kafka's tools; --version prints the version.",
    ]
    return "\n".join(lines)


def _suggestion(name: str) -> str:
    plain = name.removeprefix("kafka-").removesuffix(".sh")
    known = [command for command, entry in COMMANDS.items() if _exists(entry)]
    return did_you_mean(plain, known) or "; see barnabas --help"

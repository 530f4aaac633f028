"""The parser of the tools, and the options that they share.

In Kafka: `CommandDefaultOptions`.
"""

import argparse
from collections.abc import Iterable
from typing import Any, NoReturn

from barnabas.cli.connection.reachability import ANSWER_S
from barnabas.cli.options.help_text import HelpText
from barnabas.cli.options.helpful_parser import HelpfulParser

__all__ = [
    "BROKERS_HELP",
    "ToolParser",
    "add_connect_timeout",
    "add_connection_options",
    "add_output_option",
    "seconds",
    "where_to_name_brokers",
]

_MAX_S = 1e6  # more than a week; sockets take no infinite timeout

BROKERS_HELP = "a broker to ask for the others, or several of them (default: those of the context)"
"""The help of ``--bootstrap-server``: all commands follow one rule."""

_ANSWER_HELP = f"answer within S seconds, with what is known by then (default: {ANSWER_S:g})"
_START_HELP = f"how many seconds to wait for a broker's first answer (default: {ANSWER_S:g})"


class ToolParser(HelpfulParser):
    """A parser that takes options as Kafka's tools do, abbreviations included.

    An option with one value may be repeated, and the last one counts; those of which Kafka takes
    all are declared with ``append``.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"barnabas {command}",
            description=description,
            allow_abbrev=True,
            formatter_class=HelpText,
        )
        self.add_argument("--version", action="version", version=_version())

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Like argparse's.

        A command with ``--bootstrap-server`` that does not get it takes the brokers
        from the context."""
        given = super().parse_args(args, namespace)
        if getattr(given, "bootstrap_server", "given") is None:
            self._take_context(given)
        return given

    def _take_context(self, given: argparse.Namespace) -> None:
        others = ("broker_list", "zookeeper", "authorizer_properties")
        if any(getattr(given, other, None) for other in others) or _names_servers(given):
            return
        from barnabas.cli.connection.contexts import current_context

        context = current_context()
        if context is not None:
            given.bootstrap_server = context.bootstrap_server
            for name in ("command_config", "producer_config", "consumer_config"):
                if getattr(given, name, "given") is None:
                    setattr(given, name, context)

    def refuse_together(self, given: argparse.Namespace, option: str, others: Iterable[str]) -> None:
        """End with 2 if ``option`` was given and any of ``others`` too."""
        if not self.has(given, option):
            return
        for other in others:
            if other != option and self.has(given, other):
                self.error(f'Option "[{option}]" can\'t be used with option "[{other}]"')

    def require(self, given: argparse.Namespace, *options: str) -> None:
        """End with 2 unless all of ``options`` were given."""
        for option in options:
            if not self.has(given, option):
                self.missing(option)

    def missing(self, option: str) -> NoReturn:
        """End with 2, in the words of Kafka's tools; where brokers are missing, with
        how to name them."""
        self.error(f'Missing required argument "[{option}]"{where_to_name_brokers(option)}')

    def has(self, given: argparse.Namespace, option: str) -> bool:
        """Whether an option was given on the command line, rather than left at its default."""
        value = getattr(given, option.replace("-", "_").replace(".", "_"))
        return value is not None and value is not False and value != []


def where_to_name_brokers(*missing: str) -> str:
    """What follows an error about missing options: how a command learns the brokers,
    if these are among them."""
    if not {"bootstrap-server", "broker-list"} & set(missing):
        return ""
    from barnabas.cli.machine.clusters import running_clusters

    running = [cluster.bootstrap_servers for cluster in running_clusters()]
    servers = running[0] if running else "localhost:9092"
    return (
        f"; give --bootstrap-server {servers}, or set it once for all commands: "
        f"barnabas context add local --bootstrap-servers {servers}"
    )


def _names_servers(given: argparse.Namespace) -> bool:
    """Whether a property on the command line names the brokers: a context's are not theirs,
    nor are its credentials."""
    for option in ("producer_props", "producer_property", "consumer_property", "X"):
        items = getattr(given, option, None) or []
        words = [word for item in items for word in ([item] if isinstance(item, str) else item)]
        if any(word.startswith(("bootstrap.servers=", "metadata.broker.list=")) for word in words):
            return True
    return False


def _version() -> str:
    from barnabas import __version__

    return f"barnabas {__version__}"


def add_connection_options(
    parser: argparse.ArgumentParser, *, has_own_timeout: bool = False, waits: bool = False
) -> None:
    """``--bootstrap-server``, ``--command-config`` and ``--timeout``, which some of Kafka's
    tools use for another time."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help=BROKERS_HELP,
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a .properties file with settings for the connection, such as client.id or security.protocol",
    )
    add_connect_timeout(parser, has_own_timeout=has_own_timeout, waits=waits)


def add_connect_timeout(parser: argparse.ArgumentParser, *, has_own_timeout: bool = False, waits: bool = False) -> None:
    """The deadline: ``--connect-timeout``, and ``--timeout`` where Kafka's tool has no
    other time under this name.

    A command that ``waits`` by nature has a deadline for its start only.
    """
    options = ["--connect-timeout"] if has_own_timeout else ["--timeout", "--connect-timeout"]
    parser.add_argument(
        *options,
        dest="connect_timeout",
        type=seconds,
        default=ANSWER_S,
        metavar="S",
        help=_START_HELP if waits else _ANSWER_HELP,
    )


def seconds(text: str) -> float:
    """The type of an option that is a time in seconds. Raises `argparse.ArgumentTypeError`."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= _MAX_S:
        raise argparse.ArgumentTypeError(f"{text}: a number of seconds above 0 is expected, such as 5 or 0.5")
    return found


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """``--output text|json``."""
    parser.add_argument("--output", choices=("text", "json"), default="text", help="a table for people, or JSON")

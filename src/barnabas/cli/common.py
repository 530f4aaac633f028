"""What the tools share: options, property lists, output as a table or as JSON."""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.settings import read_properties, utf8_warnings
from barnabas.cli.colours import Style, painted, print_warning
from barnabas.cli.help_text import HelpText
from barnabas.cli.helpful_parser import HelpfulParser
from barnabas.cli.reachability import ANSWER_S
from barnabas.cli.terminal import columns, escaped_for, print_document
from barnabas.client.properties.translation import CONNECT_TIMEOUT_PROPERTY

if TYPE_CHECKING:
    from barnabas.cli.contexts import Context
    from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = [
    "BROKERS_HELP",
    "ToolParser",
    "add_connect_timeout",
    "add_connection_options",
    "add_output_option",
    "aligned",
    "client_properties_file",
    "connect",
    "key_values",
    "named_values",
    "padded",
    "print_json",
    "properties_file",
    "read_properties_file",
    "seconds",
    "where_to_name_brokers",
]


_REQUEST_TIMEOUT_MS, _API_TIMEOUT_MS = 30_000, 60_000  # Kafka's
_MAX_S = 1e6  # more than a week; sockets take no infinite timeout


BROKERS_HELP = "a broker to ask for the others, or several of them (default: those of the context)"
"""The help of ``--bootstrap-server``: all commands follow one rule."""

_ANSWER_HELP = f"answer within S seconds, with what is known by then (default: {ANSWER_S:g})"
_START_HELP = f"how many seconds to wait for a broker's first answer (default: {ANSWER_S:g})"


class ToolParser(HelpfulParser):
    """A parser that takes options in Kafka's way: abbreviations too; the message before the usage line.

    Options named with a single value may be repeated; those that Kafka lets repeat are declared with ``append``.
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
        """As argparse's; an option that names brokers takes them from the context where it is not given."""
        given = super().parse_args(args, namespace)
        if getattr(given, "bootstrap_server", "given") is None:
            self._take_context(given)
        return given

    def _take_context(self, given: argparse.Namespace) -> None:
        if getattr(given, "broker_list", None) or getattr(given, "zookeeper", None) or _names_servers(given):
            return
        from barnabas.cli.contexts import current_context

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
        """End with 2, in the words of Kafka's tools; where brokers are missing, with how to name them."""
        self.error(f'Missing required argument "[{option}]"{where_to_name_brokers(option)}')

    def has(self, given: argparse.Namespace, option: str) -> bool:
        """Whether an option was given on the command line, rather than left at its default."""
        value = getattr(given, option.replace("-", "_").replace(".", "_"))
        return value is not None and value is not False and value != []


def where_to_name_brokers(*missing: str) -> str:
    """What follows an error about missing options: how a command learns the brokers, if these are among them."""
    if not {"bootstrap-server", "broker-list"} & set(missing):
        return ""
    from barnabas.cli.local_clusters import running_clusters

    running = [cluster.bootstrap_servers for cluster in running_clusters()]
    servers = running[0] if running else "localhost:9092"
    return (
        f"; give --bootstrap-server {servers}, or set it once for all commands: "
        f"barnabas context add local --bootstrap-servers {servers}"
    )


def _names_servers(given: argparse.Namespace) -> bool:
    """Whether a property on the command line names the brokers: a context's are not theirs, nor are its credentials."""
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
    """``--bootstrap-server``, ``--command-config`` and ``--timeout``, which some of Kafka's tools use for another time."""
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
    """The deadline: ``--connect-timeout``, and ``--timeout`` where Kafka's tool has no other time under this name.

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


def connect(arguments: argparse.Namespace, client_id: str) -> "AdminConnection":
    """A connection to the cluster that the options name, with the command's deadline; close it after use."""
    from barnabas.client.cluster.admin_connection import AdminConnection
    from barnabas.client.network.deadline import Deadline

    properties = properties_file(arguments.command_config)
    properties.setdefault("client.id", client_id)
    # The deadline alone decides: a user who allows more than these allow by default means it.
    timeout_ms = math.ceil(arguments.connect_timeout * 1000)
    properties.setdefault(CONNECT_TIMEOUT_PROPERTY, str(timeout_ms))
    properties.setdefault("request.timeout.ms", str(max(timeout_ms, _REQUEST_TIMEOUT_MS)))
    properties.setdefault("default.api.timeout.ms", str(max(timeout_ms, _API_TIMEOUT_MS)))
    return AdminConnection(arguments.bootstrap_server, properties, Deadline(arguments.connect_timeout))


def properties_file(path: "str | Context | None") -> dict[str, str]:
    """A .properties file as a dictionary, or what a context has for connections; nothing for None."""
    if path is None:
        return {}
    if not isinstance(path, str):
        from barnabas.client.properties.translation import overridden

        return overridden(properties_file(path.command_config), {**path.properties, **path.secrets()})
    try:
        given = read_properties_file(path, print_warning)
    except OSError as error:
        raise BarnabasError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not a .properties file: {error}") from None
    from barnabas.client.librdkafka.clients import FREE_TEXT

    for name in FREE_TEXT.intersection(given):
        if given[name] != given[name].strip():
            print_warning(
                f"{path}: {name} begins or ends with a blank, which belongs to the value here; Java's clients drop it"
            )
    return given


def read_properties_file(path: str | Path, warn: Callable[[str], None]) -> dict[str, str]:
    """The properties of a file, whose bytes are ISO-8859-1, as for Java. Raises OSError and ValueError.

    ``warn`` gets a line for each value in UTF-8, in which Java sees other characters, too.
    """
    with open(path, encoding="latin-1", newline="") as file:
        text = file.read()
    for line in utf8_warnings(str(path), text):
        warn(line)
    return read_properties(text)


def client_properties_file(path: "str | Context | None") -> dict[str, str]:
    """The same for `Producer` and `Consumer`. A name that clients do not know has no effect, as for Kafka's tools, with a warning.

    What would protect a connection but for a typing error stays, and is refused; so is every such name of an option.
    """
    from barnabas.client.properties.names import CLIENT_PROPERTIES, is_client_property, looks_like_security_property

    given = properties_file(path)
    for name in [name for name in given if not is_client_property(name) and not looks_like_security_property(name)]:
        del given[name]
        hint = did_you_mean(name, CLIENT_PROPERTIES)
        where = f" in {path}" if isinstance(path, str) else ""
        print_warning(f"{name}{where} is not a property of clients, and has no effect{hint}")
    return given


def key_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """``name=value`` options, repeated, as a dictionary in which the last of a name counts."""
    return dict(named_values(texts, option))


def named_values(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    """``name=value`` options in order; names may repeat, the value may be empty and may hold equals signs."""
    values = []
    for item in texts:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {item}: NAME=VALUE is expected")
        values.append((name.strip(), value))
    return values


def print_json(value: Any) -> None:
    """One JSON document on standard output, for the shell."""
    print_document(json.dumps(value, indent=2, ensure_ascii=False))


def aligned(header: Sequence[str], rows: Iterable[Sequence[object]], minimum: Mapping[str, int] | None = None) -> str:
    """A table as Kafka's tools print it: columns left aligned and one blank apart, no blanks at a line's end."""
    minimum = minimum or {}
    first, *others = padded([header, *rows], [minimum.get(name, 0) for name in header])
    return "\n".join([painted(Style.HEADER, first, sys.stdout), *others])


def padded(rows: Sequence[Sequence[object]], minimum: Sequence[int] = (), gap: str = " ") -> list[str]:
    """Rows for standard output as lines, with columns of at least ``minimum`` characters; on a terminal cells are escaped."""
    is_terminal = sys.stdout.isatty()
    measure = columns if is_terminal else len
    texts = [[escaped_for(str(cell), sys.stdout) for cell in row] for row in rows]
    widths = [max(map(measure, column)) for column in zip(*texts, strict=True)]
    widths = [max(pair) for pair in itertools.zip_longest(widths, minimum, fillvalue=0)]
    return [
        gap.join(cell + " " * (width - measure(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    ]

"""What the tools share: options, property lists, output as a table or as JSON."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.settings import read_properties

if TYPE_CHECKING:
    from barnabas.client.admin_connection import AdminConnection

__all__ = [
    "ToolParser",
    "add_connection_options",
    "add_output_option",
    "aligned",
    "connect",
    "key_values",
    "print_json",
    "properties_file",
]


class ToolParser(argparse.ArgumentParser):
    """A parser that takes options in Kafka's way: abbreviations too; the message before the usage line.

    Options named with a single value may be repeated; those that Kafka lets repeat are declared with ``append``.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"barnabas {command}",
            description=description,
            allow_abbrev=True,
        )
        self.add_argument("--version", action="version", version=_version())

    def error(self, message: str) -> NoReturn:
        """End with 2 after one line that says what is wrong and one that says where help is."""
        self.exit(2, f"{message}\nSee {self.prog} --help.\n")

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
                self.error(f'Missing required argument "[{option}]"')

    def has(self, given: argparse.Namespace, option: str) -> bool:
        """Whether an option was given on the command line, rather than left at its default."""
        value = getattr(given, option.replace("-", "_").replace(".", "_"))
        return value is not None and value is not False and value != []


def _version() -> str:
    from barnabas import __version__

    return f"barnabas {__version__}"


def add_connection_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """``--bootstrap-server`` and ``--command-config``."""
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        required=required,
        help="a broker to ask for the others, or several of them",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a .properties file with settings for the connection, such as client.id",
    )


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """``--output text|json``."""
    parser.add_argument("--output", choices=("text", "json"), default="text", help="a table for people, or JSON")


def connect(arguments: argparse.Namespace, client_id: str) -> "AdminConnection":
    """A connection to the cluster that the options name; close it after use."""
    from barnabas.client.admin_connection import AdminConnection

    properties = properties_file(arguments.command_config)
    properties.setdefault("client.id", client_id)
    return AdminConnection(arguments.bootstrap_server, properties)


def properties_file(path: str | None) -> dict[str, str]:
    """A .properties file as a dictionary; nothing for None."""
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return read_properties(file.read())
    except OSError as error:
        raise BarnabasError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not a .properties file: {error}") from None


def key_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """``name=value`` options, repeated, as a dictionary; the value may be empty and may hold equals signs."""
    values = {}
    for item in texts:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {item}: NAME=VALUE is expected")
        values[name.strip()] = value
    return values


def print_json(value: Any) -> None:
    """One JSON document on standard output, for the shell."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    print()


def aligned(header: Sequence[str], rows: Iterable[Sequence[object]], minimum: Mapping[str, int] | None = None) -> str:
    """A table as Kafka's tools print it: columns left aligned and one blank apart, no blanks at a line's end."""
    texts = [[str(cell) for cell in row] for row in rows]
    minimum = minimum or {}
    widths = [
        max([len(name), minimum.get(name, 0), *(len(row[column]) for row in texts)])
        for column, name in enumerate(header)
    ]
    return "\n".join(
        " ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [list(header), *texts]
    )

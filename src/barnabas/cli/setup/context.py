"""``barnabas context``: name clusters with their credentials, and choose the one
that commands work with."""

import argparse
import getpass
import os
import secrets as secrets_of_python
import sys
from pathlib import Path

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.installation import install_command
from barnabas.cli.connection.contexts import (
    CONTEXT_VARIABLE,
    Context,
    contexts_file,
    keyring_service,
    load_contexts,
    save_contexts,
)
from barnabas.cli.connection.credentials import SECRETS, open_keyring
from barnabas.cli.connection.properties import key_values, unresolved_file
from barnabas.cli.options.tool_parser import ToolParser, add_output_option
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.output.terminal import print, print_lines
from barnabas.client.errors import LibrdkafkaOnlyError
from barnabas.client.network.broker_link import parse_servers
from barnabas.client.properties.config_providers import resolved
from barnabas.client.properties.translation import KNOWN_FOR_LOGIN, overridden, renamed_for_all, security_properties
from barnabas.client.security.link_security import LinkSecurity

__all__ = ["main"]

_OF_LIBRDKAFKA = ("GSSAPI", "OAUTHBEARER")
_ID_BYTES = 8


def main(argv: list[str]) -> int:
    """Add, list, use or remove contexts."""
    parser = _parser()
    given = parser.parse_args(argv)
    contexts, used = load_contexts()
    gone: Context | None = None
    added: Context | None = None
    if given.action == "list":
        _print(contexts, os.environ.get(CONTEXT_VARIABLE) or used, as_json=given.output == "json")
        return 0
    if not given.name:
        parser.error(f"context {given.action}: a name is expected")
    if given.action == "add":
        if not given.bootstrap_servers:
            parser.error('Missing required argument "[bootstrap-servers]"')
        gone, added = contexts.get(given.name), _add(given)
        contexts[given.name] = added
        used = used or given.name
    elif given.name == "none" and given.action == "use":
        used = None
    elif given.name not in contexts:
        known = ", ".join(contexts) or "none"
        raise BarnabasError(f"there is no context {given.name}: there are {known}{did_you_mean(given.name, contexts)}")
    elif given.action == "use":
        used = given.name
    else:
        gone = contexts.pop(given.name)
        used = None if used == given.name else used
    try:
        save_contexts(contexts, used)
    except BarnabasError:
        _forget(added)
        raise
    _forget(gone)
    print(f"commands use {used}" if used else "no context is in use")
    return 0


def _parser() -> ToolParser:
    parser = ToolParser(
        "context",
        "Name clusters, so that commands need no --bootstrap-server. BARNABAS_CONTEXT chooses one for a shell, 'use' for "
        "all. Passwords are kept in the system's keyring where there is one (the extra keyring), and otherwise in a file "
        "that only you can read.",
    )
    add = parser.add_argument
    add("action", choices=("add", "list", "use", "remove"), help="what to do")
    add("name", nargs="?", help="the context's name; with use: none takes back the choice")
    add("--bootstrap-servers", "--bootstrap-server", metavar="HOST:PORT[,...]", help="with add: the cluster's brokers")
    add(
        "--config",
        metavar="FILE",
        help="with add: a .properties file with settings for connections; it stays where it is",
    )
    add(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with add: a setting for connections, such as security.protocol=SASL_SSL; may be repeated",
    )
    add(
        "--secret",
        action="append",
        default=[],
        metavar="NAME",
        help="with add: a setting that is asked for, or read as a line of standard input, so that it appears neither in the "
        "shell's history nor in the process list, such as sasl.password; may be repeated",
    )
    add("--no-keyring", action="store_true", help="with add: keep secrets in the file, although there is a keyring")
    add_output_option(parser)
    return parser


def _add(given: argparse.Namespace) -> Context:
    """The context that the options describe; its secrets are in the keyring when this returns.

    Raises `ConfigError`."""
    parse_servers(given.bootstrap_servers)
    config = str(Path(given.config).absolute()) if given.config else None
    in_file = unresolved_file(config)
    properties = key_values(given.property, "--property")
    for name in [*properties, *given.secret]:
        _check_name(name)
    for name in given.secret:
        if name not in SECRETS:
            raise ConfigError(f"--secret {name}: give it with --property; secrets are {', '.join(sorted(SECRETS))}")
        properties[name] = _ask(name)
    _check_security(resolved(overridden(in_file, properties)))
    secrets = {name: value for name, value in properties.items() if name in SECRETS}
    entry_id = secrets_of_python.token_hex(_ID_BYTES)
    kept = [] if given.no_keyring else _keep(keyring_service(given.name, entry_id), secrets)
    where = [name for name in secrets if name not in kept]
    if where:
        why = (
            ""
            if given.no_keyring or kept
            else f"; there is no keyring that can be used here ({install_command('keyring')})"
        )
        print(f"{', '.join(where)}: kept in {contexts_file()}, which only you can read{why}", file=sys.stderr)
    return Context(
        given.name,
        given.bootstrap_servers,
        config,
        {name: value for name, value in properties.items() if name not in kept},
        kept,
        entry_id if kept else "",
    )


def _check_name(name: str) -> None:
    """A security setting with a typing error would be no setting."""
    if name in ("bootstrap.servers", "metadata.broker.list"):
        raise ConfigError(f"{name}: give the brokers with --bootstrap-servers")
    if security_properties({name: ""}) and name not in KNOWN_FOR_LOGIN:
        raise ConfigError(f"{name} is not a setting of clients{did_you_mean(name, KNOWN_FOR_LOGIN)}")


def _check_security(properties: dict[str, str]) -> None:
    """Refuse now what no command could connect with.

    Mechanisms that librdkafka alone has are left to it."""
    try:
        LinkSecurity(properties)
    except LibrdkafkaOnlyError:
        if renamed_for_all(properties).get("sasl.mechanisms", "").upper() not in _OF_LIBRDKAFKA:
            raise


def _ask(name: str) -> str:
    if sys.stdin.isatty():
        value = getpass.getpass(f"{name}: ")
    else:
        value = sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise ConfigError(f"{name} is empty: type it, or give it as a line of standard input")
    return value


def _keep(service: str, secrets: dict[str, str]) -> list[str]:
    """Put secrets into the keyring; the names of those that it took."""
    keyring = open_keyring() if secrets else None
    if keyring is None:
        return []
    kept = [name for name, value in secrets.items() if keyring.keep(service, name, value)]
    if kept:
        print(f"{', '.join(kept)}: kept in the keyring ({keyring.name})", file=sys.stderr)
    else:
        print(f"the keyring ({keyring.name}) does not keep what it is given", file=sys.stderr)
    return kept


def _forget(context: Context | None) -> None:
    """Remove from the keyring what a context that is in no file any more has there."""
    if context is None or not context.in_keyring:
        return
    keyring = open_keyring()
    if keyring is not None:
        for name in context.in_keyring:
            keyring.forget(context.service, name)


def _shown(context: Context) -> dict[str, str]:
    return {name: value for name, value in context.properties.items() if name not in SECRETS}


def _places(context: Context) -> dict[str, str]:
    """Where each secret is; never the secret."""
    in_file = {name: "file" for name in context.properties if name in SECRETS}
    return in_file | dict.fromkeys(context.in_keyring, "keyring")


def _print(contexts: dict[str, Context], used: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "bootstrap_servers": each.bootstrap_server,
                    "config": each.command_config,
                    "properties": _shown(each),
                    "secrets": _places(each),
                    **({"keyring_service": each.service} if each.in_keyring else {}),
                    "used": each.name == used,
                }
                for each in contexts.values()
            ]
        )
        return
    rows = [
        (
            "*" if each.name == used else "",
            each.name,
            each.bootstrap_server,
            each.command_config or "-",
            " ".join(
                [
                    *(f"{name}={value}" for name, value in _shown(each).items()),
                    *(f"{name}=({place})" for name, place in _places(each).items()),
                ]
            )
            or "-",
        )
        for each in contexts.values()
    ]
    print_lines(aligned(("", "NAME", "BOOTSTRAP-SERVERS", "CONFIG", "PROPERTIES"), rows))

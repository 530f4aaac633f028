"""``barnabas context``: name clusters, and choose the one that commands work with."""

import os
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.cli.common import ToolParser, add_output_option, aligned, print_json
from barnabas.cli.contexts import VARIABLE, Context, load_contexts, save_contexts
from barnabas.client.admin_connection import parse_servers

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Add, list, use or remove contexts."""
    parser = ToolParser(
        "context",
        "Name clusters, so that commands need no --bootstrap-server. BARNABAS_CONTEXT chooses one for a shell, 'use' for all.",
    )
    parser.add_argument("action", choices=("add", "list", "use", "remove"), help="what to do")
    parser.add_argument("name", nargs="?", help="the context's name; with use: none takes back the choice")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT[,...]", help="with add: the cluster's brokers")
    parser.add_argument("--config", metavar="FILE", help="with add: a .properties file with settings for connections")
    add_output_option(parser)
    given = parser.parse_args(argv)
    contexts, used = load_contexts()
    if given.action == "list":
        _print(contexts, os.environ.get(VARIABLE) or used, as_json=given.output == "json")
        return 0
    if not given.name:
        parser.error(f"context {given.action}: a name is expected")
    if given.action == "add":
        if not given.bootstrap_servers:
            parser.error('Missing required argument "[bootstrap-servers]"')
        parse_servers(given.bootstrap_servers)
        config = str(Path(given.config).absolute()) if given.config else None
        contexts[given.name] = Context(given.name, given.bootstrap_servers, config)
        used = used or given.name
    elif given.name == "none" and given.action == "use":
        used = None
    elif given.name not in contexts:
        raise BarnabasError(f"there is no context {given.name}: there are {', '.join(contexts) or 'none'}")
    elif given.action == "use":
        used = given.name
    else:
        del contexts[given.name]
        used = None if used == given.name else used
    save_contexts(contexts, used)
    print(f"commands use {used}" if used else "no context is in use")
    return 0


def _print(contexts: dict[str, Context], used: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": each.name,
                    "bootstrap_servers": each.bootstrap_server,
                    "config": each.command_config,
                    "used": each.name == used,
                }
                for each in contexts.values()
            ]
        )
        return
    rows = [
        ("*" if each.name == used else "", each.name, each.bootstrap_server, each.command_config or "-")
        for each in contexts.values()
    ]
    print(aligned(("", "NAME", "BOOTSTRAP-SERVERS", "CONFIG"), rows))

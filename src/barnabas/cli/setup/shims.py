"""``barnabas shims``: ``kafka-topics.sh`` and the other scripts, so that the command lines of any
tutorial work unchanged."""

import os
import shlex
import sys
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.cli.commands import by_script
from barnabas.cli.options.tool_parser import ToolParser
from barnabas.cli.output.terminal import print

__all__ = ["main"]

_DAEMON = "-daemon"


def main(argv: list[str]) -> int:
    """Write the scripts, with and without ``.sh``."""
    parser = ToolParser("shims", "Write kafka-topics.sh and the other scripts of Apache's distributions to a folder.")
    parser.add_argument("directory", metavar="DIR", help="the folder, to be put in front of PATH")
    given = parser.parse_args(argv)
    directory = Path(given.directory).absolute()
    if os.pathsep in str(directory):
        raise BarnabasError(
            f"{directory} cannot be in PATH, in which {os.pathsep} separates folders: choose another folder"
        )
    interpreter = shlex.quote(sys.executable)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, command in by_script().items():
            for path in (directory / name, directory / f"{name}.sh"):
                path.write_bytes(os.fsencode(_script(interpreter, command)))
                path.chmod(0o755)
    except OSError as error:
        raise BarnabasError(f"{directory} cannot be written: {error.strerror}; choose another folder") from None
    print(f"export PATH={shlex.quote(str(directory))}:$PATH")
    return 0


def _script(interpreter: str, command: str) -> str:
    run = f"{interpreter} -m barnabas {command}"
    lines = ["#!/bin/sh"]
    if command.endswith("server-start"):
        # Apache's scripts start a server in the background with -daemon.
        lines += [
            f'if [ "$1" = "{_DAEMON}" ]; then',
            "  shift",
            f'  nohup {run} "$@" >"${{LOG_DIR:-.}}/{command}.out" 2>&1 </dev/null &',
            "  exit 0",
            "fi",
        ]
    return "\n".join([*lines, f'exec {run} "$@"', ""])

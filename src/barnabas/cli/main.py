"""The entry point: find the command's module, run it, and turn its errors into one
line and an exit code.

Exit codes: 0 done, 1 failed (a `BarnabasError`, one line on standard error), 2 wrong usage, 3
the answer is incomplete, 130 stopped by Ctrl-C, 141 when the reader of the output is gone
(`standard_streams`). Only the command's own module is imported, so that each tool starts in a
fraction of a second.
"""

import sys
from collections.abc import Sequence

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.cli.commands import COMMANDS, command_main
from barnabas.cli.output.colours import print_error
from barnabas.cli.output.exit_codes import INTERRUPTED
from barnabas.cli.output.standard_streams import finish_output, forget_output, prepare_streams
from barnabas.cli.output.terminal import print, print_lines

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``barnabas COMMAND ...`` and return the exit code.

    ``argv`` is without the program's name."""
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
    except OSError as error:
        # Commands report the errors that they expect; a full disk may come with any line.
        place = f"{error.filename}: " if error.filename else ""
        return _failed(f"{place}{error.strerror or error}")
    except UnicodeError as error:
        return _failed(f"a text cannot be used, for it is not UTF-8: {error}")
    except SystemExit as stop:  # argparse: --help, or wrong usage
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1


def _failed(problem: str, *more: str) -> int:
    code = finish_output(1)  # what the command has printed comes before the error
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
    if name not in COMMANDS:
        print_error(f"barnabas: there is no command {name!r}{_suggestion(name)}")
        return 2
    return command_main(name)(arguments[1:])


def _usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [
        "Usage: barnabas COMMAND [OPTION ...]",
        "",
        "A messaging platform that speaks Apache Kafka's and Apache ZooKeeper's protocols.",
        "",
        "Commands:",
        *(f"  {name:<{width}}{command.help}" for name, command in COMMANDS.items()),
        "",
        "barnabas help COMMAND lists a command's options, which are those of Kafka's tools; --version prints the version.",
    ]
    return "\n".join(lines)


def _suggestion(name: str) -> str:
    plain = name.removeprefix("kafka-").removesuffix(".sh")
    return did_you_mean(plain, COMMANDS) or "; see barnabas --help"

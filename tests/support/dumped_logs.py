"""What ``barnabas dump-log`` says of the files of a log."""

import contextlib
import io
from collections.abc import Iterable
from pathlib import Path

from barnabas.cli.main import main

__all__ = ["dump_log"]


def dump_log(files: Iterable[Path], *options: str) -> str:
    """The output for these segments, in the order of their names."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(["dump-log", *options, "--files", ",".join(map(str, sorted(files)))]) == 0
    return output.getvalue()

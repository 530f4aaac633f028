"""What Apache's DumpLogSegments and ours print of the same files."""

import contextlib
import io
from pathlib import Path

from barnabas.cli.log_files import dump_log
from support.reference import apache_tool

__all__ = ["dumpable", "java_dump", "our_dump"]


def java_dump(files: list[Path], *options: str) -> tuple[list[str], str]:
    """What Apache's tool prints, and what it complains of."""
    done = apache_tool("kafka.tools.DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    assert done.returncode == 0, done.stderr
    printed, complaints = (
        [line for line in text.splitlines() if not line.startswith("SLF4J")] for text in (done.stdout, done.stderr)
    )
    return printed, "".join(f"{line}\n" for line in complaints)


def our_dump(files: list[Path], *options: str) -> list[str]:
    """What ours prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert dump_log.main(["--files", ",".join(map(str, files)), *options]) == 0
    return out.getvalue().splitlines()


def dumpable(folder: Path) -> list[Path]:
    """The files of a replica that the tools read."""
    suffixes = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)

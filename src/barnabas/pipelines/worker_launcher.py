"""The program that Spark on this machine starts as Python: it lets workers connect in time (`early_worker`).

Spark starts ``PROGRAM -m MODULE`` and names in the environment where the worker is to connect. The daemon from which workers
are forked is not waited for in this way, and starts as ever.
"""

import hashlib
import os
import shlex
import sys
from pathlib import Path

from barnabas.pipelines import early_worker
from barnabas.pipelines.jvm import write_program

__all__ = ["prepare_python"]

_LAUNCHER = """#!/bin/sh
# Starts a Python worker of Spark that connects before it imports PySpark.
if [ "$1" = -m ] && [ "$2" != pyspark.daemon ] && [ -n "$PYTHON_WORKER_FACTORY_PORT$PYTHON_WORKER_FACTORY_SOCK_PATH" ]; then
  exec {python} -P {early} "$@"
fi
exec {python} "$@"
"""


def prepare_python(cache: Path) -> str:
    """The path of the launcher for this Python, kept in ``cache``; of Python itself where there is no shell or no file to run."""
    early = early_worker.__file__
    if os.name != "posix" or not os.path.isfile(early):
        return sys.executable
    text = _LAUNCHER.format(python=shlex.quote(sys.executable), early=shlex.quote(early))
    program = cache / f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    write_program(program, text)
    return str(program)

"""Whether the files and folders that a flow writes can be made, before it runs and without
making one. Needs no Spark.

A file of a database needs its folder; lakes and models make theirs. A run makes the checkpoint's
folder first, with those above it.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from barnabas.pipelines.flow_file.fields import SpecProblem
from barnabas.pipelines.outputs.declared import Sink
from barnabas.pipelines.outputs.registry import kind_of
from barnabas.pipelines.specification.spec import Flow

__all__ = ["find_place_problems", "sink_place_problem"]


def find_place_problems(flow: Flow) -> list[SpecProblem]:
    """What is wrong with the places of a flow on this machine, each with its field."""
    return [
        SpecProblem(flow.places.file, flow.places.line_of(name), name, message) for name, message in _problems(flow)
    ]


def _problems(flow: Flow) -> Iterator[tuple[str, str]]:
    if problem := _place_problem(flow.checkpoint, flow.checkpoint, is_folder=True):
        yield "checkpoint", problem
    for number, sink in enumerate(flow.sinks):
        if problem := sink_place_problem(sink, flow.checkpoint):
            yield f"sinks[{number}].path", problem
    if flow.model and (problem := _place_problem(flow.model.path, flow.checkpoint, is_folder=True)):
        yield "model.path", problem


def sink_place_problem(sink: Sink, checkpoint: str) -> str | None:
    """Why the file or folder of a sink can be neither written nor made.

    None if it can, or if the sink has none."""
    place = kind_of(sink).local_place(sink)
    return None if place is None else _place_problem(place.path, checkpoint, is_folder=place.is_folder)


def _place_problem(path: str, checkpoint: str, *, is_folder: bool) -> str | None:
    place = Path(path)
    if os.path.exists(path):
        if os.path.isdir(path) != is_folder:
            return (
                f"{path} is a folder, and a file is expected"
                if not is_folder
                else f"{path} is a file, and a folder is expected"
            )
        # A database has files beside its own while it writes.
        here = [place] if is_folder else [place, place.parent]
        return next((f"this user may not write in {each}" for each in here if not os.access(each, os.W_OK)), None)
    nearest = next(each for each in place.parents if os.path.exists(each))
    if not nearest.is_dir():
        return f"{path} cannot be made: {nearest} is a file; name another path"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"{path} cannot be made: this user may not write in {nearest}; name another path"
    folder = place.parent
    if is_folder or nearest == folder or ("://" not in checkpoint and Path(checkpoint).is_relative_to(folder)):
        return None
    return (
        f"{path} cannot be made: there is no folder {folder}; make it with {shlex.join(['mkdir', '-p', str(folder)])}"
    )

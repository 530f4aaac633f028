"""A checkpoint's folder is its own: neither results nor what a flow reads may lie in it.

Needs no Spark. `barnabas pipeline reset` and `rewind` delete and move what a checkpoint holds, and
people delete the folder by hand.
"""

from collections.abc import Mapping
from pathlib import Path

from barnabas.pipelines.flow_file.fields import SpecTable

__all__ = ["require_checkpoint_folder"]


def require_checkpoint_folder(root: SpecTable, checkpoint: str, file: str, places: Mapping[str, str]) -> None:
    """Raise `SpecError` if the checkpoint holds the flow's file or one of the places, given by
    their fields, or lies in one."""
    folder = Path(checkpoint).resolve()
    advice = "give position and state a folder of their own"
    if Path(file).resolve().is_relative_to(folder):
        raise root.fail("checkpoint", f"is {checkpoint}, which holds the flow's file: {advice}")
    for name, place in places.items():
        path = Path(place).resolve()
        if path.is_relative_to(folder):
            raise root.fail(name, f"is {place}, which is inside the checkpoint {checkpoint}: {advice}")
        if folder.is_relative_to(path):
            raise root.fail("checkpoint", f"is {checkpoint}, which is inside {name}, {place}: {advice}")

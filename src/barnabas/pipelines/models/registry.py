"""The versions of a model in a folder:

    current          the number of the version that flows use; replaced atomically
    1/model/         the fitted pipeline, as Spark ML saves it
    1/version.json   metrics, columns, offsets of the training data, time; written last, so a
                     version has it or is not whole

A running flow looks at ``current`` before each micro-batch: a new version is used from the
next one on, without a stop.
"""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles

__all__ = ["ModelError", "ModelFolder", "ModelVersion"]


class ModelError(BarnabasError):
    """There is no model, or it does not fit."""


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """What is known of a version."""

    version: int
    type: str
    label: str
    numbers: list[str]
    categories: list[str]
    trained_at: str
    rows_trained: int
    rows_tested: int
    metrics: dict[str, float]
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """Where the training data ended in each partition."""
    spark: str = ""


class ModelFolder:
    """Versions of one model."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._files = OsFiles()

    def versions(self) -> list[ModelVersion]:
        """The whole versions, oldest first."""
        found = [
            self.version(int(each.name)) for each in self.path.glob("*") if each.name.isdecimal() and _is_whole(each)
        ]
        return sorted(found, key=lambda each: each.version)

    def version(self, number: int) -> ModelVersion:
        try:
            return ModelVersion(**json.loads((self.path / str(number) / "version.json").read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            known = ", ".join(str(each.version) for each in self.versions()) or "none"
            raise ModelError(f"there is no version {number} of the model in {self.path}; there are: {known}") from error
        except (ValueError, TypeError) as error:
            raise ModelError(f"version {number} of the model in {self.path} is damaged: {error}") from error

    def current(self) -> int:
        """The version that flows use; raises `ModelError` if there is none."""
        try:
            return int((self.path / "current").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ModelError(
                f"there is no trained model in {self.path}: run barnabas pipeline train with the flow's file"
            ) from error
        except ValueError as error:
            raise ModelError(f"{self.path / 'current'} names no version: {error}") from error

    def use(self, number: int) -> ModelVersion:
        """Make a version the one that flows use."""
        version = self.version(number)
        self._files.write_atomically(str(self.path / "current"), f"{number}\n".encode())
        return version

    def next_folder(self) -> tuple[int, Path]:
        """The next version's number and its folder, empty.

        What an earlier training left unfinished is removed."""
        self.path.mkdir(parents=True, exist_ok=True)
        number = max((each.version for each in self.versions()), default=0) + 1
        folder = self.path / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return number, folder

    def model_path(self, number: int) -> str:
        return str((self.path / str(number) / "model").absolute())

    def finish(self, version: ModelVersion) -> None:
        """The version is whole."""
        path = self.path / str(version.version) / "version.json"
        self._files.write_atomically(str(path), json.dumps(asdict(version), indent=2).encode())


def _is_whole(folder: Path) -> bool:
    return (folder / "version.json").exists()

"""Scoring: a column with the model's answer beside each result, micro-batch by micro-batch.

A micro-batch that runs again after a crash must give the same rows, though another version may be
in use by then. So the version of a micro-batch is noted in the checkpoint (``model.json``) before
its rows go to the sinks.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.ml import PipelineModel
from pyspark.ml.functions import vector_to_array
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.base.files import OsFiles
from barnabas.pipelines.models.registry import ModelError, ModelFolder
from barnabas.pipelines.specification.model import MODEL_VERSION, Model

__all__ = ["Scorer"]


class Scorer:
    """Applies the version in use to micro-batches."""

    def __init__(self, how: Model, checkpoint: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._how = how
        self._folder = ModelFolder(how.path)
        self._note = checkpoint / "model.json"
        self._say = say
        self._version = -1
        self._fitted: Any = None
        self._check(self._folder.current())

    def _check(self, number: int) -> None:
        version = self._folder.version(number)
        declared = (self._how.type, list(self._how.numbers), list(self._how.categories))
        if (version.type, version.numbers, version.categories) != declared:
            raise ModelError(
                f"version {number} of the model in {self._folder.path} was trained with another type or other columns "
                "than the flow's file declares: train it again"
            )

    def add_columns(self, results: DataFrame) -> DataFrame:
        """The results as sinks will get them, without values: for their columns."""
        return results.withColumns(
            {
                self._how.score: F.lit(None).cast("double"),
                MODEL_VERSION: F.lit(None).cast("int"),
            }
        )

    def score(self, batch: DataFrame, query: str, epoch: int) -> DataFrame:
        """The micro-batch with the score and the version.

        The score is null where a number to learn from is null."""
        number = self._version_of(query, epoch)
        if number != self._version:
            self._check(number)
            self._fitted = PipelineModel.load(f"file://{self._folder.model_path(number)}")
            if self._version >= 0:
                self._say(f"scoring with version {number} of the model from micro-batch {epoch} on")
            self._version = number
        how = self._how
        # Features as training saw them; the batch's own columns keep their types.
        features = {name: F.col(name).cast("double") for name in how.numbers}
        features |= {name: F.col(name).cast("string") for name in how.categories}
        own = F.struct(*[F.col(name) for name in batch.columns]).alias("_barnabas_row")
        scored: DataFrame = self._fitted.transform(
            batch.select(own, *[each.alias(name) for name, each in features.items()])
        )
        answer = vector_to_array(F.col("probability"))[1] if how.is_classifier else F.col("prediction")
        known = F.lit(col=True)
        for name in how.numbers:
            known = known & F.col(name).isNotNull()
        return scored.select(
            "_barnabas_row.*", F.when(known, answer).alias(how.score), F.lit(number).alias(MODEL_VERSION)
        )

    def _version_of(self, query: str, epoch: int) -> int:
        note: dict[str, Any] = json.loads(self._note.read_text(encoding="utf-8")) if self._note.exists() else {}
        if (note.get("query"), note.get("epoch")) == (query, epoch):
            return int(note["version"])
        number = self._folder.current()
        values = {"query": query, "epoch": epoch, "version": number}
        OsFiles().write_atomically(str(self._note), json.dumps(values).encode())
        return number

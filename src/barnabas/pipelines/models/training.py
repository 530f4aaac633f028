"""Training: the flow's results in batch, up to where the topics end now, through a
pipeline of Spark ML."""

import datetime
import json
from collections.abc import Callable
from typing import Any

from pyspark.ml import Pipeline, PipelineModel, Transformer
from pyspark.ml.classification import GBTClassifier, LogisticRegression
from pyspark.ml.evaluation import BinaryClassificationEvaluator, RegressionEvaluator
from pyspark.ml.feature import OneHotEncoder, StringIndexer, VectorAssembler
from pyspark.ml.regression import GBTRegressor, LinearRegression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.pipelines.models.registry import ModelError, ModelFolder, ModelVersion
from barnabas.pipelines.specification.model import Model

__all__ = ["train_model"]

_LABEL, _FEATURES, _IS_TEST = "_barnabas_label", "_barnabas_features", "_barnabas_test"
_TEST_SHARE, _SEED = 0.2, 17
_LEARNERS: dict[str, Any] = {
    "logistic_regression": LogisticRegression,
    "linear_regression": LinearRegression,
    "boosted_trees_classifier": GBTClassifier,
    "boosted_trees_regressor": GBTRegressor,
}


def train_model(
    rows: DataFrame,
    how: Model,
    *,
    offsets: dict[str, dict[str, int]],
    say: Callable[[str], None] = lambda _: None,
) -> ModelVersion:
    """Fits a model on the rows, measures it on those held out, and keeps it as a new version,
    which is not in use yet.

    Rows without a label, or without one of the numbers, are left out. Raises
    `ModelError` if too few are left.
    """
    is_test = F.expr(how.test) if how.test else F.rand(_SEED) < _TEST_SHARE
    known = rows.select(
        F.expr(how.label).cast("double").alias(_LABEL),
        F.coalesce(is_test, F.lit(col=False)).alias(_IS_TEST),
        *[F.col(name).cast("double").alias(name) for name in how.numbers],
        *[F.col(name).cast("string").alias(name) for name in how.categories],
    ).dropna(subset=[_LABEL, *how.numbers])
    known = known.persist()
    try:
        learned, tested = known.where(~F.col(_IS_TEST)), known.where(F.col(_IS_TEST))
        rows_learned, rows_tested = learned.count(), tested.count()
        _check_rows(learned, how, rows_learned, rows_tested)
        say(f"learning from {rows_learned:,} rows")
        fitted = Pipeline(stages=[*_encoders(how), _learner(how)]).fit(learned)
        say(f"measuring on {rows_tested:,} rows")
        metrics = _metrics(fitted, tested, how)
    finally:
        known.unpersist()
    folder = ModelFolder(how.path)
    number, _ = folder.next_folder()
    fitted.write().save(f"file://{folder.model_path(number)}")
    version = ModelVersion(
        version=number,
        type=how.type,
        label=how.label,
        numbers=list(how.numbers),
        categories=list(how.categories),
        trained_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        rows_trained=rows_learned,
        rows_tested=rows_tested,
        metrics=metrics,
        offsets=json.loads(json.dumps(offsets)),
        spark=rows.sparkSession.version,
    )
    folder.finish(version)
    return version


def _check_rows(learned: DataFrame, how: Model, rows_learned: int, rows_tested: int) -> None:
    if not rows_learned or not rows_tested:
        raise ModelError(
            f"there are {rows_learned:,} rows to learn from and {rows_tested:,} to measure on; both are needed. "
            "Rows whose label or numbers are null do not count."
        )
    if how.is_classifier:
        labels = sorted(row[0] for row in learned.select(_LABEL).distinct().limit(3).collect())
        if labels != [0.0, 1.0]:
            raise ModelError(f"the label of a classifier must be true or false, and both must occur; found {labels}")


def _encoders(how: Model) -> list[Any]:
    stages: list[Any] = []
    if how.categories:
        indexed = [f"_barnabas_index_{name}" for name in how.categories]
        encoded = [f"_barnabas_vector_{name}" for name in how.categories]
        # "keep": a category that training did not see, or null, has a place of its own.
        stages += [
            StringIndexer(inputCols=list(how.categories), outputCols=indexed, handleInvalid="keep"),
            OneHotEncoder(inputCols=indexed, outputCols=encoded),
        ]
        return [*stages, VectorAssembler(inputCols=[*how.numbers, *encoded], outputCol=_FEATURES, handleInvalid="keep")]
    return [VectorAssembler(inputCols=list(how.numbers), outputCol=_FEATURES, handleInvalid="keep")]


def _learner(how: Model) -> Any:
    return _LEARNERS[how.type](featuresCol=_FEATURES, labelCol=_LABEL)


def _metrics(fitted: PipelineModel | Transformer, tested: DataFrame, how: Model) -> dict[str, float]:
    predicted = fitted.transform(tested)
    if not how.is_classifier:
        return {
            name: round(RegressionEvaluator(labelCol=_LABEL, metricName=name).evaluate(predicted), 6)
            for name in ("rmse", "mae", "r2")
        }
    auc = BinaryClassificationEvaluator(labelCol=_LABEL, metricName="areaUnderROC").evaluate(predicted)
    right = predicted.select(
        F.avg((F.col("prediction") == F.col(_LABEL)).cast("double")), F.avg(F.col(_LABEL)).alias("share")
    ).first()
    assert right is not None
    return {"auc": round(auc, 6), "accuracy": round(right[0], 6), "share_true": round(right[1], 6)}

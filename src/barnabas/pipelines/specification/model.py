"""The model of a flow's file, ``[model]``, as typed values. Needs no Spark."""

from dataclasses import dataclass

from barnabas.pipelines.flow_file.fields import SpecTable

__all__ = ["MODEL_TYPES", "MODEL_VERSION", "Model", "declare_model"]

MODEL_TYPES = ("logistic_regression", "linear_regression", "boosted_trees_classifier", "boosted_trees_regressor")

MODEL_VERSION = "model_version"
"""The column with the number of the version that gave the score."""


@dataclass(frozen=True, slots=True)
class Model:
    """What is learned from which columns, and where the versions of the model are kept."""

    path: str
    type: str
    label: str
    """An SQL expression over the flow's results: true or false for a classifier, a
    number for a regressor."""
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    test: str | None = None
    """An SQL condition: rows to measure the model on, not to learn from. A fifth of
    the rows by chance if None."""
    score: str = "score"
    """The column that scoring adds: a probability of true, or the expected number."""

    @property
    def is_classifier(self) -> bool:
        return self.type in ("logistic_regression", "boosted_trees_classifier")

    @property
    def features(self) -> tuple[str, ...]:
        return (*self.numbers, *self.categories)


def declare_model(table: SpecTable | None) -> Model | None:
    """The table ``[model]``."""
    if table is None:
        return None
    numbers, categories = table.texts("numbers"), table.texts("categories")
    if not numbers and not categories:
        raise table.fail("numbers", "is missing: give columns to learn from as numbers, categories, or both")
    for name in numbers:
        if name in categories:
            raise table.fail("categories", f"names {name}, which is among the numbers already")
    return Model(
        path=table.needed_path("path", "the folder that keeps the model's versions"),
        type=table.choice("type", MODEL_TYPES),
        label=table.needed("label", 'what is to be learned, in SQL, such as "dep_delay > 15"'),
        numbers=numbers,
        categories=categories,
        test=table.text("test"),
        score=table.text("score", "score") or "",
    )

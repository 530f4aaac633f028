"""A format of flows in one module: ``a:1|b:2``.

``register_format(PAIRS)`` is all else that it needs."""

from collections.abc import Mapping
from typing import Any, ClassVar

from barnabas.pipelines.formats.declared import CORRUPT, Format, FormatExample, FormatKind


class PairsKind(FormatKind):
    """Names and values, all of whole numbers."""

    type: ClassVar[str] = "pairs"
    example: ClassVar[FormatExample | None] = FormatExample(
        fields='columns = { a = "int", b = "int" }',
        where="b > 0",
        derive='c = "a + b"',
        text="a",
        rows='"a:1|b:2",\n  "a:1|b:0",',
        expected="{ a = 1, b = 2, c = 3 },",
    )

    def what(self, how: Format) -> str:
        return "line of name:value pairs"

    def decode(self, how: Format, value: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

        text = value.cast("string")
        fits = text.rlike(r"^\w+:-?\d+(\|\w+:-?\d+)*$")
        pairs = F.str_to_map(F.when(fits, text), F.lit("\\|"), F.lit(":"))
        columns = [
            F.try_element_at(pairs, F.lit(name)).try_cast(kind).alias(name) for name, kind in how.columns.items()
        ]
        return F.struct(*columns, F.when(~fits, F.lit(f"the value is no {how.what}")).alias(CORRUPT))

    def encode(self, how: Format, row: Mapping[str, Any]) -> bytes:
        return "|".join(f"{name}:{value}" for name, value in row.items()).encode()


PAIRS = PairsKind()

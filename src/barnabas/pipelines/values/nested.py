"""The walks over nested values: structs, arrays and maps, whose parts are columns of their own.

A walk takes a column with its type and calls a function for each leaf, which is a value of any
other type. `rewritten` makes the value again with other leaves, `has_part` asks whether a leaf has
a property. Both return None where no leaf is concerned, so that Spark computes nothing there.

Spark: Catalyst walks expressions in the same way (`TreeNode.transform`, `TreeNode.exists`).
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

__all__ = ["has_part", "rewritten"]

Rewrite = Callable[[Column, DataType], Column | None]
"""Another value for one of this type; None if it stays as it is."""
IsFound = Callable[[Sequence[Column], Sequence[DataType], str | None], Column | None]
"""Whether a part is one that is looked for, from its columns, their types and the name of its
field; None if no part of these types is."""


def rewritten(value: Column, kind: DataType, leaf: Rewrite, key: Rewrite | None = None) -> Column | None:
    """The value with what ``leaf`` makes of its leaves, and ``key`` of the keys of its maps.

    Nulls stay nulls. None if nothing in this type changes."""
    if isinstance(kind, StructType):
        parts = {each.name: rewritten(value[each.name], each.dataType, leaf, key) for each in kind}
        if all(each is None for each in parts.values()):
            return None
        fields = [(value[name] if part is None else part).alias(name) for name, part in parts.items()]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        if rewritten(value, inner, leaf, key) is None:
            return None
        return F.transform(value, lambda each: cast(Column, rewritten(each, inner, leaf, key)))
    if isinstance(kind, MapType):
        of, by = kind.valueType, kind.keyType
        new = value
        if rewritten(value, of, leaf, key) is not None:
            new = F.transform_values(new, lambda _, each: cast(Column, rewritten(each, of, leaf, key)))
        if key is not None and key(value, by) is not None:
            new = F.transform_keys(new, lambda each, _: cast(Column, key(each, by)))
        return None if new is value else new
    return leaf(value, kind)


def has_part(
    columns: Sequence[Column],
    kinds: Sequence[DataType],
    is_found: IsFound,
    name: str | None = None,
    *,
    of_map: Callable[[Column], Column] | None = None,
) -> Column | None:
    """Whether a value has a part for which ``is_found`` is true; None if no value can have one.

    ``columns`` are forms of the same value, such as what was read and what became of it; ``kinds``
    are one or more types of it, all nested alike. ``name`` is the value's in its struct, if it has
    one. ``of_map`` is another condition, on each map in the first form.
    """
    first = kinds[0]
    conditions: list[Column | None]
    if isinstance(first, StructType):
        structs = cast(Sequence[StructType], kinds)
        conditions = [
            has_part(
                [each[field.name] for each in columns],
                [each[at].dataType for each in structs],
                is_found,
                field.name,
                of_map=of_map,
            )
            for at, field in enumerate(first)
        ]
    elif isinstance(first, ArrayType):
        inner = [cast(ArrayType, each).elementType for each in kinds]
        conditions = [_has_element(columns, inner, is_found, of_map)]
    elif isinstance(first, MapType):
        of = [cast(MapType, each).valueType for each in kinds]
        values = [F.map_values(each) for each in columns]
        conditions = [of_map(columns[0]) if of_map else None, _has_element(values, of, is_found, of_map)]
    else:
        return is_found(columns, kinds, name)
    known = [F.coalesce(each, F.lit(False)) for each in conditions if each is not None]
    return reduce(or_, known) if known else None


def _has_element(
    arrays: Sequence[Column],
    kinds: Sequence[DataType],
    is_found: IsFound,
    of_map: Callable[[Column], Column] | None,
) -> Column | None:
    """The same of the elements of arrays, which are of one length."""
    if has_part([F.lit(None)] * len(arrays), kinds, is_found, of_map=of_map) is None:
        return None
    names = [f"c{at}" for at in range(len(arrays))]

    def is_one(element: Column) -> Column:
        forms = [element] if len(arrays) == 1 else [element[each] for each in names]
        return F.coalesce(cast(Column, has_part(forms, kinds, is_found, of_map=of_map)), F.lit(False))

    zipped = [each.alias(name) for each, name in zip(arrays, names, strict=True)]
    return F.exists(arrays[0] if len(arrays) == 1 else F.arrays_zip(*zipped), is_one)

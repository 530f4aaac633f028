"""What Spark's plan of a flow says: state, watermarks, order of sources, output mode.

Plans are read in this module only. A plan is a tree of nodes of the JVM, of classic sessions only
(`DataFrame._jdf`); nothing here runs it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program
from pyspark.sql.types import StructType

__all__ = [
    "KEPT",
    "SOURCE_OPTION",
    "ImplicitCast",
    "aggregated_inputs",
    "expressions_of",
    "follows_clock",
    "has_watermark",
    "implicit_casts",
    "is_harmless",
    "may_raise",
    "multiplies_rows",
    "output_mode",
    "read_sources",
    "stateful_operations",
]

_KEEP_ROWS = ("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "Join")
_WHOLE = 100_000
"""Characters of an operation's text: all of them."""
_NOT_OF_STATE = re.compile(r"#\d+L?|-T\d+ms| AS (`[^`]*`|\w+)(?=#)")
_ID = re.compile(r"#(\d+)")
_MADE_ID = re.compile(r" AS (?:`[^`]*`|\w+)#(\d+)")
_PARSED = "_barnabas_row"
"""The column from which a format's columns are taken."""
SOURCE_OPTION = "flowSource"
"""The option that carries a source's name into Spark's plan; Spark itself knows
streams by their order alone."""
KEPT = "_barnabas_before_"
"""The prefix of columns that keep another column while expressions are tried. It has no part in
how that column is made."""
_HARMLESS = frozenset(
    [
        "Alias",
        "And",
        "AttributeReference",
        "CaseWhen",
        "Coalesce",
        "Contains",
        "CreateNamedStruct",
        "EndsWith",
        "EqualNullSafe",
        "EqualTo",
        "GetStructField",
        "GreaterThan",
        "GreaterThanOrEqual",
        "If",
        "In",
        "IsNotNull",
        "IsNull",
        "Length",
        "LessThan",
        "LessThanOrEqual",
        "Literal",
        "Lower",
        "Not",
        "Or",
        "StartsWith",
        "StringTrim",
        "Upper",
    ]
)
"""Expressions that have a value for every row, if their parts have."""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIVISIONS = ("Divide", "IntegralDivide", "Remainder", "Pmod")
_MAY_FAIL = (
    "ElementAt",
    "GetArrayItem",
    "GetTimestamp",
    "MakeDate",
    "MakeTimestamp",
    "ToUnixTimestamp",
    "UnixTimestamp",
)
"""Expressions that raise for some rows, unless ``failOnError`` is false."""
_PARSE = ("ParseToDate", "ParseToTimestamp")
_PARSE_TEXTS = ("GetTimestamp", "ToUnixTimestamp", "UnixTimestamp")
"""Expressions that raise for texts only; they take times, too."""
_CAST_FUNCTIONS = re.compile(
    r"(boolean|tinyint|smallint|int|bigint|float|double|decimal|date|time|timestamp)\s*\(", re.IGNORECASE
)
"""Casts as they may be written, too: ``int(text)``."""
_NAMELESS = ("CommonExpressionRef", "LambdaFunction", "NamedLambdaVariable", "With")
"""Expressions whose SQL is none that a person would write."""
_SHOWN_LENGTH = 60
_ADDED_CAST = re.compile(r"CAST\(([\w.`]+|'[^']*') AS [A-Z]+(?:\([\d, ]+\))?\)")


@dataclass(frozen=True, slots=True)
class ImplicitCast:
    """A text that Spark makes another type of because an expression needs it,
    without being asked to."""

    text: str
    """The expression, as SQL."""
    kind: str
    """The type that it becomes."""
    fits: bool | None
    """Whether a text of the file is a value of the type; None if the texts are those of rows."""


def expressions_of(frame: DataFrame, *, whole: bool = False) -> list[Any]:
    """The expressions of the frame's last operation.

    ``whole``: of all operations back to the views that it reads. What a choice of columns explodes
    is an operation of the plan, but none of its own here.
    """
    found: list[Any] = []
    waiting = [_plan(frame)]
    while waiting:
        node = waiting.pop()
        found += _items(node.expressions())
        follows = (lambda each: each.nodeName() != "View") if whole else (lambda each: each.nodeName() == "Generate")
        waiting += filter(follows, _children(node))
    return found


def aggregated_inputs(figures: Sequence[DataFrame]) -> list[list[Column]]:
    """What each of an aggregate's figures, just made, takes of a row that may raise:
    expressions over the rows' columns."""
    context: Any = SparkContext._active_spark_context
    utilities = context._jvm.org.apache.spark.sql.classic.ExpressionUtils
    functions = [
        [each for one in expressions_of(figure) for each in _parts(one) if _name_of(each) == "AggregateExpression"]
        for figure in figures
    ]
    number = sum(1 for figure in functions for each in figure if _taken(each))

    def inputs(function: Any) -> list[Column]:
        columns = [Column(utilities.column(each)) for each in _taken(function)]
        guards = _options(function.filter())
        # Spark computes what several functions have in common before their filters,
        # and a distinct value, too.
        if number == 1 and not function.isDistinct() and guards and is_harmless(guards[0]):
            return [F.when(Column(utilities.column(guards[0])), each) for each in columns]
        return columns

    return [[column for each in figure for column in inputs(each)] for figure in functions]


def _taken(function: Any) -> list[Any]:
    """What an aggregate's function takes of each row that may raise, its filter too."""
    taken = (*_children(function.aggregateFunction()), *_options(function.filter()))
    return [each for each in taken if not is_harmless(each)]


def is_harmless(expression: Any) -> bool:
    """Whether the expression has a value for every row: none of its parts can raise.

    False if that is not known."""
    name = _name_of(expression)
    if name == "Cast":
        child = expression.child()
        return _widens(child.dataType().simpleString(), expression.dataType().simpleString()) and is_harmless(child)
    return name in _HARMLESS and all(map(is_harmless, _children(expression)))


def _widens(old: str, new: str) -> bool:
    """Whether each value of the old type has one of the new type."""
    is_number = old in (*_INTEGERS, "float", "double") or old.startswith("decimal")
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) <= _INTEGERS.index(new)
    return is_number and new in ("double", "string")


def may_raise(expressions: Sequence[Any]) -> list[str]:
    """Parts of the expressions, as SQL, that are known to raise for some rows: divisions,
    casts of texts, and the like."""
    return list(dict.fromkeys(_shown(each, one) for one in expressions for each in _parts(one) if _raises(each)))


def _raises(part: Any) -> bool:
    """Whether a part is known to raise for some rows.

    False if this PySpark's expressions cannot be asked."""
    try:
        return _is_strict(part)
    except Py4JError:
        return False


def _is_strict(part: Any) -> bool:
    name = _name_of(part)
    if name in _DIVISIONS:
        return str(part.evalMode()) == "ANSI" and _may_be_zero(part.right())
    if name == "Cast":
        return _is_strict_of_text(part) and not part.child().foldable()
    if name in _PARSE:  # of which not all say whether they raise; what they stand for does
        return any(map(_raises, _parts(part.replacement())))
    if name in _PARSE_TEXTS and not _is_text(part.left()):
        return False
    return name == "ToNumber" or (name in _MAY_FAIL and bool(part.failOnError()))


def _may_be_zero(divisor: Any) -> bool:
    """Whether a divisor is 0 for some rows, as far as is known."""
    if not divisor.foldable():
        return True
    try:
        value = divisor.eval(None)
    except (PySparkException, Py4JError):
        return True
    return value is not None and float(str(value)) == 0


def implicit_casts(expressions: Sequence[Any]) -> list[ImplicitCast]:
    """Texts that the expressions take for numbers, times and the like without a cast
    that is written down."""
    context: Any = SparkContext._active_spark_context
    written = context._jvm.org.apache.spark.sql.catalyst.expressions.Cast.USER_SPECIFIED_CAST()
    found: dict[ImplicitCast, None] = {}
    for one in expressions:
        for each in _parts(one):
            if _name_of(each) != "Cast" or not _is_strict_of_text(each):
                continue
            if each.getTagValue(written).isDefined() or _is_cast_function(each):
                continue
            fits = _has_value(each) if each.child().foldable() else None
            found[ImplicitCast(_shown(each.child(), one), each.dataType().simpleString(), fits)] = None
    return list(found)


def _is_cast_function(cast_of: Any) -> bool:
    """Whether a cast is written as a function: ``int(text)``.

    Spark gives one that it adds the text of what needs it."""
    text = _written(cast_of)
    if not _CAST_FUNCTIONS.match(text):
        return False
    context: Any = SparkContext._active_spark_context
    try:
        parsed = context._jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser().parseExpression(text)
    except (PySparkException, Py4JError):
        return False
    return _name_of(parsed) == "UnresolvedFunction"  # and not int(text) + 1, for a part of that


def _written(expression: Any) -> str:
    """The part of the flow's SQL that the expression comes from.

    Empty if Spark does not know it."""
    context = expression.origin().context()
    return "" if context is None else str(context.fragment())


def _has_value(foldable: Any) -> bool:
    """Whether an expression without columns can be computed."""
    try:
        foldable.eval(None)
    except (PySparkException, Py4JError):
        return False
    return True


def _is_strict_of_text(cast_of: Any) -> bool:
    """Whether a cast is from text to another type, and raises for texts that do not fit."""
    new = cast_of.dataType().simpleString()
    return (
        _is_text(cast_of.child())
        and not new.startswith("string")
        and new != "binary"
        and str(cast_of.evalMode()) == "ANSI"
    )


def _is_text(expression: Any) -> bool:
    return str(expression.dataType().simpleString()).startswith("string")


def _parts(expression: Any) -> Iterator[Any]:
    """The expression and all in it, except the parts that are tried (`attempts`,
    ``try_divide`` and the like)."""
    if _name_of(expression) == "TryEval":
        return
    yield expression
    for each in _children(expression):
        yield from _parts(each)


def _name_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _options(option: Any) -> list[Any]:
    """An option of Scala's as a list."""
    return [option.get()] if option.isDefined() else []


def _shown(expression: Any, whole: Any) -> str:
    """A part of an expression as SQL, without what Spark has added to it."""
    name = _name_of(expression)
    if name == "NamedLambdaVariable":
        return str(expression.name())
    if name == "CommonExpressionRef":
        number = str(expression.id())
        defined = (each for each in _parts(whole) if _name_of(each) == "CommonExpressionDef")
        for each in defined:
            if str(each.id()) == number:
                return _shown(each.child(), whole)
    text = str(expression.sql())
    if any(_name_of(each) in _NAMELESS for each in _parts(expression)):
        text = _written(expression) or text
    if not text.startswith("CAST("):
        text = _ADDED_CAST.sub(r"\1", text)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def multiplies_rows(results: DataFrame) -> bool:
    """Whether one row becomes several, as by explode."""
    return any(node.nodeName() == "Generate" for node in _nodes(results))


def read_sources(results: DataFrame) -> list[str]:
    """The names of the sources in the order in which Spark's checkpoint and reports have them.

    A source that no step reads is left out; one that is joined with itself is there twice. Empty
    if the plan does not say.
    """
    names: list[str | None] = []

    def visit(node: Any) -> None:
        if node.nodeName() == "StreamingRelationV2":
            names.append(node.extraOptions().get(SOURCE_OPTION))
        for child in _children(node):
            visit(child)

    visit(_plan(results))  # of classic sessions only
    known = [each for each in names if each is not None]
    return known if len(known) == len(names) else []


def stateful_operations(results: DataFrame) -> list[str]:
    """What Spark keeps state for, in the order of its plan, as texts that are equal as long as
    the state means the same.

    Spark itself compares only the types of what it kept. The texts have the operation with its
    groups, figures or condition, and how the columns of groups and keys are made; they have no
    filters, delays, and names of results.
    """
    found: list[str] = []
    for node in _nodes(results, only_streams=True):
        children = _children(node)
        kind = node.nodeName()
        if kind in _KEEP_ROWS and (kind != "Join" or all(each.isStreaming() for each in children)):
            text = node.simpleString(_WHOLE).lstrip("~")  # which marks streams
            keys = {"Aggregate": "groupingExpressions", "Join": "condition"}.get(kind, "keys")
            ids = set(_ID.findall(str(getattr(node, keys)()) if kind != "Distinct" else text))
            # Sorted without the numbers of expressions, for these differ from run to
            # run: 1000 comes before 999.
            made = sorted(_NOT_OF_STATE.sub("", each) for each in _definitions(children, ids))
            if kind == "Aggregate":
                fields = StructType.fromJson(json.loads(node.schema().json()))
                types = [field.dataType.simpleString() for field in fields]
                made.append(f"of {', '.join(types)}")
            found.append(_NOT_OF_STATE.sub("", "".join([text, *(f", {each}" for each in made)])))
        elif "WithState" in kind:
            found.append(kind)
    return found


def follows_clock(results: DataFrame) -> bool:
    """Whether the flow keeps state that is out of time by the clock:
    `GroupStateTimeout.ProcessingTimeTimeout`."""
    for node in _nodes(results):
        kind = node.nodeName()
        if "WithState" in kind:
            mode = node.timeMode() if kind.startswith("Transform") else node.timeout()
            if "ProcessingTime" in str(mode):
                return True
    return False


def has_watermark(aggregated: DataFrame) -> bool:
    """Whether the groups of an aggregate, just made, have a time with a watermark:
    state is forgotten by it."""
    node = _plan(aggregated)
    while node.nodeName() != "Aggregate":
        if node.children().size() != 1:
            return False
        node = node.children().apply(0)
    return "-T" in str(node.groupingExpressions())


def _plan(frame: DataFrame) -> Any:
    """The frame's plan, with every name and type resolved."""
    return frame._jdf.queryExecution().analyzed()


def _nodes(results: DataFrame, *, only_streams: bool = False) -> Iterator[Any]:
    """The nodes of a plan, each before its children.

    ``only_streams`` leaves out tables and files, with all that is below them."""
    waiting = [_plan(results)]
    while waiting:
        node = waiting.pop()
        if only_streams and not node.isStreaming():
            continue
        yield node
        waiting += reversed(_children(node))


def _children(node: Any) -> list[Any]:
    """The children of a node of a plan, or of an expression."""
    return _items(node.children())


def _items(sequence: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [sequence.apply(at) for at in range(sequence.size())]


def _definitions(nodes: list[Any], ids: set[str]) -> set[str]:
    """How columns with these ids are made of those that were parsed."""
    found: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        waiting += _children(node)
        if node.nodeName() != "Project" or not ids & set(_MADE_ID.findall(node.simpleString(_WHOLE))):
            continue
        for column in _items(node.projectList()):
            text = column.toString()
            made, number = _MADE_ID.search(text), _ID.findall(text)
            if made and number[-1] in ids and column.getClass().getSimpleName() == "Alias":
                if KEPT not in text:  # else it is a column that goes past a part of the plan
                    found.add(text)
                if f"{_PARSED}#" not in text:
                    ids |= set(number)
    return found


def output_mode(results: DataFrame) -> str:
    """How Spark is to give results: updated figures where it can, else rows that are final.

    A single aggregate can be updated. Spark wants final rows where nothing is aggregated, for
    sessions, for aggregates of aggregates, and where two streams are joined.
    """
    aggregates = 0
    final_only = False
    for node in _nodes(results, only_streams=True):
        kind = node.nodeName()
        if kind in ("Aggregate", "Distinct"):
            aggregates += 1
            final_only = final_only or "session_window" in node.simpleString(10_000)
        elif kind == "Join":
            final_only = final_only or all(each.isStreaming() for each in _children(node))
    return "update" if aggregates == 1 and not final_only else "append"

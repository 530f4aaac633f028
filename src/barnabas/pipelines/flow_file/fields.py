"""The fields of a flow's file, read one by one, so that each problem names its file, line
and field. Needs no Spark.

All problems are found in one pass, as a compiler does. What is wrong with one field is reported,
and the reading goes on with the field's default. What only several fields together show is raised,
which leaves the table, up to the next `SpecTable.recover`; it is reported only if nothing is wrong
with what it may follow from.
"""

import contextlib
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.redaction import Redactor, is_secret_name, redacted_address, redacted_setting
from barnabas.pipelines.flow_file.addresses import VARIABLE, expand_keywords, expand_text, local_path
from barnabas.pipelines.flow_file.function_files import FunctionUse

__all__ = [
    "NAME",
    "POSITION",
    "Places",
    "SpecError",
    "SpecProblem",
    "SpecProblems",
    "SpecTable",
    "check_column",
    "check_name",
    "check_web_address",
    "duration_s",
]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BROKER = re.compile(r"([A-Z_]+://)?(\[[0-9a-fA-F:.%\w]+\]|[^\s:/,]+):\d{1,5}")
_EXPRESSIONS = re.compile(r"(transform|aggregate|steps\[\d+\]|expectations\[\d+\])(\.|$)")
"""Tables with expressions that Spark computes."""
_DURATION = re.compile(
    r"(\d+ (millisecond|minute|hour|day|week)s?|\d+(\.\d+)? seconds?)( \d+ (second|minute|hour|day)s?)*"
)
_UNITS_S = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
POSITION = ("source_topic", "source_partition", "source_offset")
"""The key of rows that are not aggregated: where each came from."""


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """What is wrong with a field of a flow's file."""

    file: str
    line: int | None
    field: str
    message: str


class SpecError(ConfigError):
    """A flow's file is wrong.

    The message begins with file and line, and has a line for each problem."""

    def __init__(self, text: str, problems: Sequence[SpecProblem] = ()) -> None:
        super().__init__(text)
        self.problems = tuple(problems) or (SpecProblem("", None, "", text),)

    @classmethod
    def joined(cls, errors: "Sequence[SpecError]") -> "SpecError":
        """One error with all the problems in the order of their lines.

        What is missing as a whole stands last."""
        if len(errors) == 1:
            return errors[0]
        lines = [math.inf if each.problems[0].line is None else each.problems[0].line for each in errors]
        ordered = [errors[number] for number in sorted(range(len(errors)), key=lines.__getitem__)]
        joined = cls.of_lines(*(line for each in ordered for line in each.lines))
        joined.problems = tuple(problem for each in ordered for problem in each.problems)
        return joined


@dataclass(frozen=True, slots=True)
class Places:
    """Where the fields of a flow are: the file, and the line of each field; line 0
    is the command line."""

    file: str = "flow.toml"
    lines: Mapping[str, int] = field(default_factory=dict)
    redactor: Redactor = field(default_factory=Redactor, compare=False, repr=False)
    """The secrets of the file and of its variables, as far as they have been read."""
    unexpanded: dict[tuple[str, str], str] = field(default_factory=dict, compare=False, repr=False)
    """By a field and its text: the text with ``${NAME}`` in place of secrets, for
    fields with such variables."""
    expression_secrets: Redactor = field(default_factory=Redactor, compare=False, repr=False)
    """The secrets that variables put into expressions; others cannot be in the
    operations of a flow."""

    def lasting(self, path: str, text: str) -> str:
        """The text of a field in a form that stays the same when a secret changes.

        Other variables have their values."""
        return self.unexpanded.get((path, text), text)

    def command(self, action: str) -> str:
        """The command line of an action on this flow, as a shell takes it."""
        return f"barnabas pipeline {action} {shlex.quote(self.file or 'FILE')}"

    def line_of(self, path: str) -> int | None:
        """The line of the field, or of the table around it; None if neither is in the file."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)

    def error(self, path: str, problem: str) -> SpecError:
        """The problem of a field with its place."""
        line, problem = self.line_of(path), self.redactor.redact(problem)
        place = self.file if line is None else "--set" if line == 0 else f"{self.file}:{line}"
        text = f"{place}: {path}: {problem}" if path else f"{place}: {problem}"
        return SpecError(text, [SpecProblem(self.file, line, path, problem)])


class SpecProblems:
    """What is wrong with a file, one problem for each field: the first, which the
    others may follow from."""

    def __init__(self) -> None:
        self.found: list[SpecError] = []

    def add(self, error: SpecError) -> None:
        """Keep the problem, unless its field, a part of it, or what it is a part of has one."""
        field_name = error.problems[0].field
        if not any(_holds(field_name, each) or _holds(each, field_name) for each in self._fields()):
            self.found.append(error)

    def within(self, *paths: str) -> bool:
        """Whether anything is wrong in one of these tables."""
        return any(_holds(path, each) for path in paths for each in self._fields())

    def raise_any(self) -> None:
        """Raise `SpecError` with all of them, if there are any."""
        if self.found:
            raise SpecError.joined(self.found)

    def _fields(self) -> list[str]:
        return [each.problems[0].field for each in self.found]


def _holds(path: str, other: str) -> bool:
    """Whether a field is another one, or a table around it."""
    return other == path or other.startswith((f"{path}.", f"{path}["))


class SpecTable:
    """A TOML table that is read field by field; what is left unread at the end is unknown."""

    def __init__(
        self,
        values: dict[str, Any],
        path: str,
        places: Places,
        environ: Mapping[str, str],
        problems: SpecProblems | None = None,
        *,
        functions: FunctionUse = FunctionUse.RUN,
    ) -> None:
        """``functions`` says what becomes of Python files that the flow names."""
        self._values = values
        self._path = path
        self._places = places
        self._environ = environ
        self.problems = problems or SpecProblems()
        self.functions = functions
        self._is_left = False
        """Its reading did not come to an end."""
        self._read: dict[str, None] = {}
        self._children: list[SpecTable] = []

    def at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path and name else self._path or name

    def fail(self, name: str, problem: str) -> SpecError:
        return self._places.error(self.at(name), problem)

    def report(self, name: str, problem: str) -> None:
        """Keep the problem of a field, and go on."""
        self.problems.add(self.fail(name, problem))

    @contextlib.contextmanager
    def recover(self, *after: str) -> Iterator[None]:
        """Go on after the block if it raises `SpecError`.

        That is kept if nothing is wrong in its table, and in the tables ``after``:
        it may follow from those.
        """
        try:
            yield
        except SpecError as error:
            field_name = error.problems[0].field
            left = self._leave(field_name)
            if not self.problems.within(*after, *([left] if left else [])):
                self.problems.add(error)

    def _leave(self, field_name: str) -> str:
        """Mark the tables on the way down to a field as not read to the end.

        The path of the last one."""
        for child in self._children:
            if _holds(child._path, field_name):
                child._is_left = True
                return child._leave(field_name) or child._path
        return ""

    def has(self, name: str) -> bool:
        return name in self._values

    @property
    def folder(self) -> Path:
        """The folder of the flow's file."""
        return Path(self._places.file).parent

    def value(self, name: str) -> Any:
        """The field as it is; None if it is missing."""
        return self._take(name, object, "")

    def _take(self, name: str, kind: type, what: str) -> Any:
        self._read[name] = None
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            self.report(name, f"is {redacted_setting(name, value)}, but must be {what}")
            return None
        return value

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._take(name, str, "a text")
        return default if value is None else self._expand(name, value)

    def needed(self, name: str, hint: str = "") -> str:
        value = self.text(name)
        near = [each for each in self._values if each not in self._read and did_you_mean(each, [name])]
        if value is None and near:
            self.report(near[0], f"is unknown here{did_you_mean(near[0], [name])}")
        elif not value:
            self.report(name, f"is missing{': ' + hint if hint else ''}" if value is None else "is empty")
        if not value:
            # This leaves the table; the report above is what users see.
            raise self.fail(name, "is needed")
        return value

    def needed_address(self, name: str, hint: str = "") -> str:
        """Like `needed`, for an address; a password in it is hidden from now on."""
        return self.address(name) or self.needed(name, hint)

    def address(self, name: str) -> str | None:
        """Like `text`, for an address; a password in it is hidden from now on."""
        value = self._take(name, str, "a text")
        if value is None:
            return None
        address = expand_keywords(value, self._variable(name))
        self._places.redactor.add_address(address)
        return address

    def needed_path(self, name: str, hint: str = "") -> str:
        """Like `needed`, for a file or folder of this machine.

        A relative path is taken from the file's folder."""
        return self.resolve(name, self.needed(name, hint))

    def resolve(self, name: str, value: str) -> str:
        """The value of a field as a path; raises `SpecError` for an address that is none."""
        try:
            return local_path(value, self.folder)
        except ValueError as error:
            raise self.fail(name, str(error)) from None

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        value = self.text(name, default)
        if value not in choices:
            was = "is missing" if value is None else f"is {redacted_setting(name, value)}"
            hint = did_you_mean(value or "", choices)
            self.report(name, f"{was}, but must be one of {', '.join(choices)}{hint}")
            if default is None:
                # This leaves the table; the report above is what users see.
                raise self.fail(name, "is needed")
            return default
        return str(value)

    def number(self, name: str, default: int) -> int:
        value = self._take(name, int, "a whole number")
        if value is not None and value < 1:
            self.report(name, f"is {value}, but must be at least 1")
            return default
        return default if value is None else int(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self._take(name, bool, "true or false")
        return default if value is None else bool(value)

    def texts(self, name: str) -> tuple[str, ...]:
        found = []
        for each in self._take(name, list, 'a list of texts, like ["a", "b"]') or ():
            if isinstance(each, str) and each:
                found.append(self._expand(name, each))
            else:
                self.report(name, f"has the entry {redacted_setting(name, each)}, but entries must be texts")
        return tuple(found)

    def texts_by_name(self, name: str) -> dict[str, str]:
        value = self._take(name, dict, 'a table of texts, like {a = "x"}') or {}
        for key, each in value.items():
            if not isinstance(each, str):
                self.report(f"{name}.{key}", f"is {redacted_setting(key, each)}, but must be a text, in quotes")
        texts = {key: each for key, each in value.items() if isinstance(each, str)}
        expanded = {key: self._expand(f"{name}.{key}", each) for key, each in texts.items()}
        for key, each in expanded.items():
            self._places.redactor.add_address(each)
            if is_secret_name(key):
                self._places.redactor.add(each)
        return expanded

    def kafka_properties(self, *more_reserved: str) -> dict[str, str]:
        """The properties of Kafka's clients in ``kafka``, without those that have a field of
        their own in this table."""
        found = self.texts_by_name("kafka")
        for reserved in ("bootstrap.servers", *more_reserved):
            if reserved in found:
                self.report(f"kafka.{reserved}", "has a field of its own here")
        if found:
            from barnabas.client.properties.names import refused_by_librdkafka
            from barnabas.pipelines.cluster.options import why_refused

            for name, text in found.items():
                if why := why_refused(name):
                    self.report(f"kafka.{name}", f"cannot be set: {why}")
                if why := refused_by_librdkafka(name, text):
                    self.report(f"kafka.{name}", why)
        return found

    def require_protection(self, kafka: Mapping[str, str]) -> dict[str, str]:
        """The properties, if no connection would be less protected by them than is meant."""
        from barnabas.client.properties.translation import translate_login

        try:
            translate_login(dict(kafka))
        except ConfigError as error:
            self.report("kafka", str(error))
        return dict(kafka)

    def brokers(self, name: str) -> str | None:
        """Addresses of brokers, each with its port: clients differ in what they make
        of one without."""
        value = self.text(name)
        for each in value.split(",") if value else ():
            if not _BROKER.fullmatch(each.strip()):
                shown = ",".join(map(redacted_address, (value or "").split(",")))
                self.report(name, f'is {shown!r}, but must be brokers as host:port, such as "localhost:9092"')
        return value

    def duration(self, name: str) -> str | None:
        value = self._take(name, str, 'a time such as "10 minutes" or "1 day"')
        value = None if value is None else self._expand(name, value)
        if value is not None and not _DURATION.fullmatch(value):
            self.report(name, f'is {value!r}, but must be a time such as "10 minutes" or "1 day"')
            return None
        return value

    def table(self, name: str) -> "SpecTable | None":
        value = self._take(name, dict, f"a table [{self.at(name)}]")
        return None if value is None else self._child(value, self.at(name))

    def tables(self, name: str) -> "list[SpecTable]":
        value = self._take(name, list, f"an array of tables [[{self.at(name)}]]") or []
        # A flow written in Python may have a function where a table with the field
        # `function` may be.
        value = [{"function": each} if callable(each) else each for each in value]
        if not all(isinstance(each, dict) for each in value):
            self.report(name, f"must be an array of tables [[{self.at(name)}]]")
            return []
        return [self._child(each, f"{self.at(name)}[{index}]") for index, each in enumerate(value)]

    def tables_by_name(self, name: str) -> "dict[str, SpecTable]":
        """The tables ``[name.KEY]`` by their keys."""
        value = self._take(name, dict, f"tables [{self.at(name)}.NAME]") or {}
        for key, each in value.items():
            if not isinstance(each, dict):
                self.report(f"{name}.{key}", f"must be a table [{self.at(name)}.{key}]")
        tables = {key: each for key, each in value.items() if isinstance(each, dict)}
        return {key: self._child(each, f"{self.at(name)}.{key}") for key, each in tables.items()}

    def _child(self, value: dict[str, Any], path: str) -> "SpecTable":
        child = SpecTable(value, path, self._places, self._environ, self.problems, functions=self.functions)
        self._children.append(child)
        return child

    def refuse_rest(self) -> None:
        """Report each field that is unknown here, and in the tables below, as far as
        they were read."""
        # A root of which nothing was read would report every field.
        has_been_read = self._read or not self.problems.found
        for name in self._values if has_been_read and not self._is_left else ():
            if name not in self._read:
                hint = did_you_mean(name, self._read)
                self.report(name, f"is unknown here{hint or '; known are ' + ', '.join(self._read)}")
        for child in self._children:
            child.refuse_rest()

    def _expand(self, name: str, value: str) -> str:
        text, path = expand_text(value, self._variable(name)), self.at(name)
        secrets = {each for each in VARIABLE.findall(value) if _is_secret(name, each)}
        if secrets:
            lasting = expand_text(
                value, lambda each: f"${{{each}}}" if each in secrets else self._environ.get(each, "")
            )
            self._places.unexpanded[path, text] = lasting
        if _EXPRESSIONS.match(path):
            for each in secrets:
                self._places.expression_secrets.add(self._environ.get(each, ""), f"${{{each}}}")
        return text

    def _variable(self, name: str) -> Callable[[str], str]:
        """The values of environment variables, for a field.

        Secrets among them are hidden from now on."""

        def look_up(variable: str) -> str:
            if variable not in self._environ:
                self.report(name, f"refers to the environment variable {variable}, which is not set")
            value = self._environ.get(variable, "")
            if _is_secret(name, variable):
                self._places.redactor.add(value, f"${{{variable}}}")
            return value

        return look_up


def _is_secret(field_name: str, variable: str) -> bool:
    return is_secret_name(variable) or is_secret_name(field_name)


def check_name(table: SpecTable, field_name: str, name: str) -> None:
    """Reports a name that no column can have."""
    if not NAME.fullmatch(name):
        table.report(field_name, f"{name!r} is no name of a column: letters, digits and underscore")
    if name.startswith("_barnabas"):
        table.report(field_name, "names that begin with _barnabas are taken")


def check_column(table: SpecTable, field_name: str, name: str) -> None:
    """Reports a name that a column of rows cannot have.

    The position of their record has names, too."""
    check_name(table, field_name, name)
    if name in POSITION:
        table.report(field_name, f"{name} is where the record came from, by which sinks know rows; take another name")


def check_web_address(table: SpecTable, field_name: str, url: str, example: str) -> None:
    """Raises `SpecError` if it is not an address of http or https."""
    # Imported here, because it brings an HTTP client along that few flows need.
    from barnabas.client.registry.web import split_login

    try:
        split_login(url)
    except ConfigError:
        text = f'is {redacted_address(url)!r}, but must be an address such as "{example}"'
        raise table.fail(field_name, text) from None


def duration_s(duration: str | None) -> float:
    """A time such as ``1 hour 30 minutes`` in seconds; 0 for None."""
    words = (duration or "").split()
    return sum(float(words[at]) * _UNITS_S[words[at + 1].rstrip("s")] for at in range(0, len(words), 2))

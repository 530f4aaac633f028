"""Which keys the rows of a flow's outputs have, kept in its checkpoint: names, types, and the rule
by which keys are equal.

    keys.json      {"rule": 2, "sinks": {SINK: {COLUMN: TYPE}}}

A table whose rows were written with another key, or by another rule, would get rows beside them
that stand for the same thing.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.outputs.registry import is_table, sink_name
from barnabas.pipelines.specification.spec import POSITION, Flow, FunctionSink

__all__ = ["KEY_RULE", "settle_keys"]

KEY_RULE = 2
"""The number of the rule in `barnabas.pipelines.frames.keys`. The first one, of checkpoints without
a number, was each output's own."""
_FILE = "keys.json"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def settle_keys(flow: Flow, checkpoint: Checkpoint, types: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Compare the keys of the flow's sinks with those of its last run, and keep them.

    ``types`` are Spark's of the results' columns. Says which rows there are of an earlier rule.
    Raises `PipelineError` for another key or type.
    """
    path = checkpoint.folder / _FILE
    now = {sink_name(sink): _types(sink, types) for sink in flow.sinks if not isinstance(sink, FunctionSink)}
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        known, rule = dict(before["sinks"]), int(before["rule"])
    except FileNotFoundError:
        known, rule = {}, 1 if checkpoint.has_begun else KEY_RULE
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} is damaged: {error}") from error
    if checkpoint.has_begun:
        for name, key in now.items():
            if name in known and known[name] != key:
                raise PipelineError(_other_key(flow, name, known[name], key))
    if rule < KEY_RULE:
        _report_old_keys(flow, types, say)
    OsFiles().write_atomically(str(path), json.dumps({"rule": KEY_RULE, "sinks": now}, indent=1).encode())


def _types(sink: Any, types: Mapping[str, str]) -> dict[str, str]:
    """The columns of a key with their types, as far as these make a difference:
    whole numbers are one type."""
    found = {name: types.get(name, "") for name in sink.key}
    return {name: "bigint" if kind in _INTEGERS else kind for name, kind in found.items()}


def _other_key(flow: Flow, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    was, now = (", ".join(f"{column} ({kind})" for column, kind in key.items()) for key in (old, new))
    what = "topic" if name.startswith("topic ") else "table"
    return (
        f"the key of {name} was {was}, and is {now}: its rows would stay beside those of the new key. Give the sink another {what}, which "
        f"gets results from now on; or delete it and fill it again: `barnabas pipeline rewind {flow.places.file or 'FILE'} --to earliest --yes`"
    )


def _report_old_keys(flow: Flow, types: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Say what in the outputs, or in the state, may be of the earlier rule, once."""
    from barnabas.pipelines.outputs.old_keys import old_keys

    refill = f"`barnabas pipeline rewind {flow.places.file or 'FILE'} --to earliest --yes` fills the table again"
    for sink in flow.sinks:
        if not is_table(sink) or sink.key == POSITION:
            continue
        table: Any = sink
        try:
            for text in old_keys(table, types):
                say(
                    f"warning: {sink_name(sink)} has {text}. Keys are equal by another rule than in the version that wrote it; new rows of "
                    f"such keys come beside it. Delete these rows, if they are wrong; {refill}"
                )
        except BarnabasError as error:
            say(f"warning: {sink_name(sink)} cannot be searched for keys of an earlier version: {error}")
    if any({"key", "headers"} & set(source.record_columns) for source in flow.sources):
        say(
            "warning: since this version source_key and source_headers show bytes that are not UTF-8 by their digits; the version that made "
            "the checkpoint kept U+FFFD for each, in topics and in the state of groups and deduplications, too. If the topics have such "
            f"keys or headers: {refill}"
        )

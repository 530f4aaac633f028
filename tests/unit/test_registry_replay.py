"""The registry's state is what its log says, compacted or not, and no id is given twice."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.registry.core.qualified_subject import context_of
from barnabas.registry.errors import RegistryError
from support.registry_log import SCHEMAS, Instance, SchemasLog, all_answers

SUBJECTS = ("a", "b", ":.c:a")
SCOPES = (None, "a", ":.c:", ":.__GLOBAL:")
subjects = st.sampled_from(SUBJECTS)
scopes = st.sampled_from(SCOPES)
schemas = st.sampled_from(SCHEMAS)
references = st.one_of(
    st.just([]),
    st.builds(
        lambda subject, version: [{"name": "R", "subject": subject, "version": version}], subjects, st.integers(1, 2)
    ),
)
steps = st.one_of(
    st.tuples(st.just("register"), subjects, schemas, references),
    st.tuples(st.just("register"), subjects, schemas, st.just([])),
    st.tuples(st.just("import"), subjects, schemas, st.integers(1, 4), st.integers(1, 6)),
    st.tuples(st.just("delete version"), subjects, st.sampled_from(["1", "2", "3", "latest"]), st.booleans()),
    st.tuples(st.just("delete subject"), subjects, st.booleans()),
    st.tuples(st.just("config"), scopes, st.sampled_from(["NONE", "FULL", None])),
    st.tuples(st.just("delete config"), scopes),
    st.tuples(st.just("mode"), scopes, st.sampled_from(["IMPORT", "READWRITE", "READONLY", None]), st.booleans()),
    st.tuples(st.just("delete context")),
    st.tuples(st.just("restart"), st.sampled_from(["whole", "tombstones", "compacted"])),
)


class Machine:
    """An instance that does steps, restarts from its log, and remembers the ids that it gave."""

    def __init__(self) -> None:
        self.instance = Instance(SchemasLog())
        self.instance.set_config(":.__GLOBAL:", compatibility="NONE")
        self.seen_ids: dict[str, dict[int, str]] = {}

    def do(self, step: tuple[Any, ...]) -> None:
        with suppress(RegistryError):  # refused: nothing was written
            self._do(*step)

    def _do(self, kind: str, *values: Any) -> None:
        instance = self.instance
        if kind == "register":
            subject, schema, refers = values
            self._check_id(subject, instance.register(subject, schema, references=refers))
        elif kind == "import":
            subject, schema, version, schema_id = values
            answer = instance.register(subject, schema, version=version, id=schema_id)
            self.seen_ids.setdefault(context_of(subject), {})[answer["id"]] = answer["guid"]
        elif kind == "delete version":
            instance.delete_version(values[0], values[1], permanent=values[2])
        elif kind == "delete subject":
            instance.delete_subject(values[0], permanent=values[1])
        elif kind == "config":
            instance.set_config(values[0], compatibility=values[1])
        elif kind == "delete config":
            instance.perform(instance.registry.configs.delete(values[0]))
        elif kind == "mode":
            instance.set_mode(values[0], values[1], force=values[2])
        elif kind == "delete context":
            instance.perform(instance.registry.contexts.delete(":.c:"))
        else:
            self._restart(values[0])

    def _check_id(self, subject: str, answer: Any) -> None:
        seen = self.seen_ids.setdefault(context_of(subject), {})
        guid = seen.setdefault(answer["id"], answer["guid"])
        assert guid == answer["guid"], f"id {answer['id']} was given twice"

    def _restart(self, form: str) -> None:
        log = self.instance.log
        if form != "whole":
            end = log.end
            log = SchemasLog(log.compacted(with_tombstones=form == "tombstones"))
            log.end = end
        self.instance = Instance(log)


@given(st.lists(steps, max_size=25))
@settings(max_examples=150)
def test_any_operations_leave_the_answers_that_a_replay_of_the_log_gives(sequence: list[tuple[Any, ...]]) -> None:
    """After any steps and restarts, a replay of the log, whole or compacted, says the same."""
    machine = Machine()
    for step in sequence:
        machine.do(step)
    log = machine.instance.log
    expected = all_answers(machine.instance.registry)
    for records in (log.records, log.compacted(with_tombstones=True), log.compacted()):
        replayed = Instance(SchemasLog(records))
        assert all_answers(replayed.registry) == expected
        assert replayed.skipped == []

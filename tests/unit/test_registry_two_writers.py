"""Two registries that write to one log: each believes to be the leader for some time."""

from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.registry.core import Decision, RegisterRequest
from barnabas.registry.core.qualified_subject import context_of
from barnabas.registry.errors import ErrorCode, RegistryError
from support.registry_log import SCHEMAS, Instance, SchemasLog, all_answers, answer_or_code

SUBJECTS = ("a", "b", ":.c:a")
steps = st.one_of(
    st.tuples(st.just("decide"), st.integers(0, 1), st.sampled_from(SUBJECTS), st.sampled_from(SCHEMAS)),
    st.tuples(st.just("decide"), st.integers(0, 1), st.sampled_from(SUBJECTS), st.sampled_from(SCHEMAS)),
    st.tuples(st.just("delete"), st.integers(0, 1), st.sampled_from(SUBJECTS), st.booleans()),
    st.tuples(st.just("write"), st.integers(0, 1), st.sampled_from(["all", "first", "none"])),
    st.tuples(st.just("follow"), st.integers(0, 1), st.integers(1, 3)),
    st.tuples(st.just("lead"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("compact"), st.just(0), st.just(0)),
)


@dataclass
class Writers:
    """Two instances, what each has decided and not yet written, and what clients were answered."""

    log: SchemasLog = field(default_factory=SchemasLog)
    instances: list[Instance] = field(default_factory=list)
    decided: list[tuple[str, str | None, Decision] | None] = field(default_factory=lambda: [None, None])
    answered: dict[tuple[str, int], str] = field(default_factory=dict)
    versions: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.instances = [Instance(self.log), Instance(self.log)]
        self.instances[0].set_config(":.__GLOBAL:", compatibility="NONE")

    def decide(self, who: int, subject: str, schema: str) -> None:
        """Decide on what this instance has read, which may be old."""
        request = _request(schema)
        decision = self.instances[who].registry.subject_versions.register(subject, request)
        self.decided[who] = (subject, schema, decision)

    def delete(self, who: int, subject: str, permanent: bool) -> None:
        """Decide to delete a subject, on what this instance has read."""
        self.decided[who] = None
        with suppress(RegistryError):
            decision = self.instances[who].registry.subjects.delete(subject, permanent=permanent)
            self.decided[who] = (subject, None, decision)

    def write(self, who: int, how_much: str) -> None:
        """Write a decision, or a part of it and die; answer once all is read again."""
        decided, self.decided[who] = self.decided[who], None
        if decided is None or how_much == "none":
            return
        subject, schema, decision = decided
        if schema is None:
            self.versions = {named: each for named, each in self.versions.items() if named[0] != subject}
        if how_much == "first":
            self.log.append(decision.records[:1])
            return
        self.log.append(decision.records)
        self.instances[who].follow()
        answer = answer_or_code(decision.answer)
        if answer == ErrorCode.STORE_ERROR:  # the other one was there first
            return
        if schema is None:
            return
        assert answer["schema"] == schema
        key = (context_of(subject), answer["id"])
        assert self.answered.setdefault(key, answer["guid"]) == answer["guid"], "an id was given twice"
        assert self.versions.setdefault((subject, answer["version"]), answer["id"]) == answer["id"]

    def lead(self, who: int) -> None:
        """Take over: read all, and repair what two writers did."""
        self.instances[who].follow()
        self.log.append(self.instances[who].registry.repairs())
        self.instances[who].follow()

    def compact(self) -> None:
        """Compaction comes after the leader's repairs, as the topic's lag lets it."""
        self.lead(0)
        self.instances[1].follow()
        self.log.records = self.log.compacted()


def _request(schema: str) -> RegisterRequest:
    return RegisterRequest.from_json({"schema": schema})


@given(st.lists(steps, max_size=30))
@settings(max_examples=200)
def test_two_writers_at_once_give_no_id_twice_and_lose_nothing_that_was_answered(
    sequence: list[tuple[str, int, object, object]],
) -> None:
    """Whenever leadership moves, and whatever is half written, all that was answered holds."""
    writers = Writers()
    for kind, who, *values in sequence:
        if kind == "decide":
            writers.decide(who, str(values[0]), str(values[1]))
        elif kind == "delete":
            writers.delete(who, str(values[0]), bool(values[1]))
        elif kind == "write":
            writers.write(who, str(values[0]))
        elif kind == "follow":
            writers.instances[who].follow(int(str(values[0])))
        elif kind == "lead":
            writers.lead(who)
        else:
            writers.compact()
    writers.compact()
    answers = all_answers(writers.instances[0].registry)
    assert all_answers(writers.instances[1].registry) == answers
    assert all_answers(Instance(SchemasLog(writers.log.records)).registry) == answers
    for (subject, version), schema_id in writers.versions.items():
        assert writers.instances[0].registry.subject_versions.get(subject, str(version))["id"] == schema_id


def test_the_record_of_a_second_writer_is_passed_over_and_repaired() -> None:
    """The first record with an id has it; the leader deletes the key of the second."""
    log = SchemasLog()
    first, second = Instance(log), Instance(log)
    late = second.registry.subject_versions.register("b", _request('"int"'))
    assert first.register("a", '"string"')["id"] == 1
    log.append(late.records)
    second.follow()
    assert answer_or_code(late.answer) == ErrorCode.STORE_ERROR
    first.follow()
    assert first.skipped == [
        (
            1,
            "its id 1 belongs to another schema, version 1 of a; two registries wrote at once "
            "({magic=1,keytype=SCHEMA,subject=b,version=1})",
        )
    ]
    assert first.register("b", '"int"')["id"] == 2
    assert [record.value for record in log.records if b'"subject":"b"' in (record.key or b"")][1] is None
    assert first.registry.repairs() == ()


def test_a_version_that_a_second_writer_overwrites_stays_what_was_answered() -> None:
    """Outside of IMPORT mode another id for a version is passed over, and repaired."""
    log = SchemasLog()
    first, second = Instance(log), Instance(log)
    log.append(second.registry.subject_versions.register("other", _request('"long"')).records)
    second.follow()
    late = second.registry.subject_versions.register("a", _request('"int"'))
    # The first one does not know the other subject yet: it is as if it had the log before.
    answer = Instance(SchemasLog()).registry.subject_versions.register("a", _request('"long"'))
    log.append(answer.records)
    log.append(late.records)
    second.follow()
    assert answer_or_code(late.answer) == ErrorCode.STORE_ERROR
    first.follow()
    first.log.append(first.registry.repairs())
    after_compaction = Instance(SchemasLog(log.compacted()))
    assert after_compaction.registry.subject_versions.get("a", "1")["schema"] == '"long"'
    assert after_compaction.skipped == []

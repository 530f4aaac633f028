"""Large schemas: what takes long is done elsewhere, and the decision is the same."""

import asyncio
import json
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import pytest

from barnabas.registry.core import Decision, RegisterRequest
from barnabas.registry.core.long_work import FinishedWork, NotDoneYetError
from barnabas.registry.http.deliberation import Deliberations
from support.registry_log import Instance, SchemasLog, answer_or_code

T = TypeVar("T")
FIELDS = 400


def record(fields: int, **field: object) -> str:
    described = [{"name": f"field_{n}", "type": "string", "default": "", "doc": "d" * 20} for n in range(fields)]
    return json.dumps({"type": "record", "name": "Order", "fields": [*described, *([field] if field else [])]})


LARGE = record(FIELDS)
WITH_DEFAULT = record(FIELDS, name="more", type="int", default=1)
WITHOUT_DEFAULT = record(FIELDS, name="more", type="int")
INVALID = record(FIELDS, name="more", type="no such type")
JSON_SCHEMA = json.dumps({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(FIELDS)}})
PROTOBUF = 'syntax = "proto3"; message M {' + "".join(f"string f{n} = {n + 1};" for n in range(FIELDS)) + "}"


def deliberated(instance: Instance, decide: Callable[[], T]) -> tuple[T, list[Hashable]]:
    """The decision that is made in steps, and the long work that it asked for."""
    finished: FinishedWork = {}
    asked: list[Hashable] = []
    while True:
        try:
            with instance.registry.long_work.kept_in(finished):
                return decide(), asked
        except NotDoneYetError as missing:
            asked.append(missing.key)
            finished[missing.key] = missing.run()


def register(instance: Instance, schema: str, *, in_steps: bool, normalize: bool = False, **fields: Any) -> Any:
    request = RegisterRequest.from_json({"schema": schema, **fields})

    def decide() -> Any:
        return instance.registry.subject_versions.register("a", request, normalize=normalize)

    return answer_or_code(lambda: instance.perform(deliberated(instance, decide)[0] if in_steps else decide()))


@pytest.mark.parametrize(
    "steps",
    [
        [(LARGE, {}), (WITH_DEFAULT, {}), (LARGE, {})],
        [(LARGE, {}), (WITHOUT_DEFAULT, {})],
        [(INVALID, {}), (LARGE, {"normalize": True}), (WITH_DEFAULT, {"normalize": True})],
        [(JSON_SCHEMA, {"schemaType": "JSON"}), (JSON_SCHEMA.replace("p1", "q1"), {"schemaType": "JSON"})],
        [(PROTOBUF, {"schemaType": "PROTOBUF"}), (PROTOBUF.replace("f1 ", "g1 "), {"schemaType": "PROTOBUF"})],
        [(LARGE, {}), (PROTOBUF, {"schemaType": "PROTOBUF"})],
    ],
)
def test_decisions_in_steps_are_those_made_at_once(steps: list[tuple[str, dict[str, Any]]]) -> None:
    """Answers, codes of errors, and the records in the log are the same."""
    at_once, in_steps = Instance(SchemasLog()), Instance(SchemasLog())
    for schema, fields in steps:
        answers = [register(each, schema, in_steps=each is in_steps, **fields) for each in (at_once, in_steps)]
        assert answers[0] == answers[1]
    assert at_once.log.records == in_steps.log.records


def test_a_large_schema_is_parsed_and_compared_in_steps_of_their_own() -> None:
    """The new schema, the version before it, and the comparison of both: three pieces of work."""
    instance = Instance(SchemasLog())
    instance.register("a", LARGE)
    instance = Instance(instance.log)  # it has parsed nothing
    request = RegisterRequest.from_json({"schema": WITH_DEFAULT})
    decision, asked = deliberated(instance, lambda: instance.registry.subject_versions.register("a", request))
    assert len(decision.records) == 1
    assert len(asked) >= 3


def test_a_small_schema_is_decided_at_once() -> None:
    """A thread would cost more than the work."""
    instance = Instance(SchemasLog())
    request = RegisterRequest.from_json({"schema": record(3)})
    _, asked = deliberated(instance, lambda: instance.registry.subject_versions.register("a", request))
    assert asked == []


def test_many_small_versions_are_compared_in_a_step_of_its_own() -> None:
    """The texts of all versions count."""
    instance = Instance(SchemasLog())
    instance.set_config("a", compatibility="FULL_TRANSITIVE")
    for fields in range(1, 40):
        instance.register("a", record(fields))
    request = RegisterRequest.from_json({"schema": record(40)})
    _, asked = deliberated(instance, lambda: instance.registry.compatibility.test_all("a", request))
    assert len(asked) == 1


def test_a_text_in_another_form_is_made_in_a_step_of_its_own() -> None:
    """Formats of a stored schema are work, too."""
    instance = Instance(SchemasLog())
    instance.register("a", LARGE)
    answer, asked = deliberated(instance, lambda: instance.registry.schemas.get(1, form="resolved"))
    assert answer == instance.registry.schemas.get(1, form="resolved")
    assert asked


def test_long_work_of_a_request_is_done_on_a_thread_and_the_decision_on_the_loop() -> None:
    """The loop serves others meanwhile, and alone reads the state."""
    here = threading.current_thread()
    at_work: list[threading.Thread] = []
    instance = Instance(SchemasLog())
    request = RegisterRequest.from_json({"schema": LARGE})

    def decide() -> Decision:
        assert threading.current_thread() is here
        instance.registry.long_work.outcome("own", 1 << 20, lambda: at_work.append(threading.current_thread()))
        return instance.registry.subject_versions.register("a", request)

    async def run() -> int:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(take_turns())
        deliberations = Deliberations(instance.registry)
        try:
            assert len((await deliberations.about(decide).decided()).records) == 1
        finally:
            deliberations.close()
            others.cancel()
        return turns

    assert asyncio.run(run()) > 1
    assert len(at_work) == 1
    assert at_work[0] is not here


def test_a_request_that_is_given_up_leaves_the_others_their_turns() -> None:
    """Its work ends by itself, and nothing is written."""
    instance = Instance(SchemasLog())
    request = RegisterRequest.from_json({"schema": LARGE})

    async def run() -> None:
        deliberations = Deliberations(instance.registry)
        try:
            given_up = asyncio.create_task(
                deliberations.about(lambda: instance.registry.subject_versions.register("a", request)).decided()
            )
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            decision = await deliberations.about(
                lambda: instance.registry.subject_versions.register("b", request)
            ).decided()
            assert len(decision.records) == 1
        finally:
            deliberations.close()

    asyncio.run(run())
    assert instance.log.records == []

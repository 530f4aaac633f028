"""Who may do what, on Apache Kafka 3.9.1 and on ours: each API that both serve, in each version,
with all rights, with none, with each right missing or denied, and with rights on names that only
look alike. Answers are compared field by field.

CI asks the highest version of each API in the basic states; BARNABAS_RIGHTS=all asks all, and
versions that 3.9.1 does not have beside 4.4.0.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.apis import load_handlers
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.kafka.schema import Message, Struct
from support import acl_admin_questions, acl_group_questions, acl_record_questions
from support.acl_record_questions import NAMES
from support.acl_requests import requests
from support.acl_rights import Question, State, basic_states, further_states
from support.acl_sides import (
    CLOSED,
    FINISHED,
    GROUPS,
    RUNNING,
    SETTINGS,
    Side,
    apache_side,
    newer_apache_side,
    our_side,
    served,
)
from support.needs import needs_reference

ALL = os.environ.get("BARNABAS_RIGHTS") == "all"
QUESTIONS = [
    *acl_record_questions.QUESTIONS,
    *acl_group_questions.QUESTIONS,
    *acl_admin_questions.QUESTIONS,
]
OF_THE_LOGIN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Served to those who have no name yet."""
FIRST_OF_4 = {
    ApiKey.PRODUCE: 12,
    ApiKey.METADATA: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.END_TXN: 5,
    ApiKey.WRITE_TXN_MARKERS: 2,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.LIST_TRANSACTIONS: 2,
}
"""The first versions that Apache Kafka 3.9.1 does not serve, and ours and 4.4.0 do."""
NEVER = 100
"""Above all versions."""

OF_3 = [one for one in QUESTIONS if one.first < FIRST_OF_4.get(one.api, NEVER)]


class Sides:
    """Both clusters, and the versions that both serve."""

    def __init__(self, apache: Side, ours: Side, first: Mapping[ApiKey, int] | None = None) -> None:
        """``first``: the first versions of the APIs to ask, where these are not all."""
        self.apache = apache
        self.ours = ours
        self._first = first
        self._served = served((apache, ours))

    def versions(self, question: Question) -> list[int]:
        """Those to ask: all, or the highest."""
        first = question.first
        if self._first is not None:
            first = max(first, self._first.get(question.api, NEVER))
        known = [n for n in self._served[question.api] if first <= n <= question.last]
        return known if ALL else known[-1:]

    def compare(self, question: Question, tried: Iterable[State]) -> dict[tuple[str, int], Any]:
        """Ask both in each state; they answer alike. Apache's answers."""
        versions = self.versions(question)
        basic = {state.name for state in basic_states(question)}
        different = []
        seen: dict[tuple[str, int], Any] = {}
        for state in tried:
            for side in (self.apache, self.ours):
                side.set_acls(state.entries)
            # What matters of further states is the decision, which is the same in all versions.
            for version in versions if state.name in basic else versions[-1:]:
                theirs, ours = (ask(side, question, version) for side in (self.apache, self.ours))
                seen[state.name, version] = theirs
                if ours != theirs:
                    different.append((state.name, version, *differences(theirs, ours)))
        assert not different, "\n".join(map(str, [f"{len(different)} answers differ", *different[:20]]))
        return seen


def ask(side: Side, question: Question, version: int) -> Any:
    """The answer to the user under test, comparable."""
    question.prepare(side)
    return side.comparable(side.user.ask(question.make(side, version), version))


Start = Callable[[Path], contextlib.AbstractContextManager[Side]]


@contextlib.contextmanager
def both(folders: pytest.TempPathFactory, start: Start, first: Mapping[ApiKey, int] | None = None) -> Iterator[Sides]:
    """A cluster of Apache's and one of ours, with the same topics, groups and transactional ids."""
    with start(folders.mktemp("apache")) as apache, our_side(folders.mktemp("ours")) as ours:
        yield Sides(apache, ours, first)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Beside Apache Kafka 3.9.1."""
    with both(tmp_path_factory, apache_side) as running:
        yield running


def states(question: Question) -> Iterator[State]:
    """Those to try."""
    yield from basic_states(question)
    if ALL and question.rights:
        yield from further_states(question)


def names(question: Question) -> str:
    return f"{question.name}: {' and '.join(map(str, question.rights)) or 'no right'}"


@pytest.mark.interop
@pytest.mark.java
@needs_reference
@pytest.mark.parametrize("question", OF_3, ids=names)
def test_each_right_is_asked_for_as_by_apache(sides: Sides, question: Question) -> None:
    """The two answer alike; and where all rights are missing, otherwise than with all."""
    versions = sides.versions(question)
    assert versions, "no version that both serve"
    seen = sides.compare(question, states(question))
    if question.rights:
        assert all(seen["none", version] != seen["all", version] for version in versions)


@pytest.mark.interop
@pytest.mark.java
@needs_reference
@pytest.mark.parametrize("version", [1, 2, 3] if ALL else [3])
def test_requests_about_access_control_lists_are_answered_alike(sides: Sides, version: int) -> None:
    """By a super user; entries that cannot be, and filters of each kind."""
    wrong = []
    most = 0
    for side in (sides.apache, sides.ours):
        side.set_acls([])
    for request in requests():
        theirs, ours = (side.comparable(side.admin.ask(request, version)) for side in (sides.apache, sides.ours))
        if ours != theirs:
            wrong.append((request, theirs, ours))
        if isinstance(request, DescribeAclsRequest) and theirs != CLOSED:
            most = max(most, len(theirs["resources"]))
    assert not wrong, "\n".join(map(str, [len(wrong), *wrong[:20]]))
    assert most > 20, "many of the entries were made"


THINGS = (*NAMES, *GROUPS, *RUNNING, *FINISHED, "doomed", "no-group", "hidden-group", "none", "hidden-none")
"""Names of topics, groups and transactional ids that requests contain, some of which there are."""


@pytest.mark.interop
@pytest.mark.java
@needs_reference
def test_who_has_no_right_does_not_learn_what_there_is(sides: Sides) -> None:
    """Answers for names that there are and for those that there are not are the same, the words
    too."""
    ours = sides.ours
    ours.set_acls([])
    seen = 0
    for question in (one for one in QUESTIONS if one.rights):
        for version in sides.versions(question):
            question.prepare(ours)
            answers = list(about_things(plain(ours.user.ask(question.make(ours, version), version))))
            seen += len(answers) > 1
            assert len(set(answers)) <= 1, f"{question.name} {version}: {answers}"
    assert seen > 20, "these requests name several things"


def plain(answer: Any) -> Any:
    """All fields of a message as lists and dictionaries."""
    if isinstance(answer, Struct | Message):
        return {name: plain(getattr(answer, name)) for name in type(answer).__annotations__}
    if isinstance(answer, memoryview):
        return bytes(answer)
    return [plain(item) for item in answer] if isinstance(answer, list) else answer


def about_things(answer: Any) -> Iterator[str]:
    """Each part of an answer that is about one of the names, without the name."""
    if isinstance(answer, dict):
        if any(isinstance(value, str) and value in THINGS for value in answer.values()):
            yield repr(
                {
                    name: "its name" if isinstance(value, str) and value in THINGS else value
                    for name, value in answer.items()
                }
            )
        else:
            for value in answer.values():
                yield from about_things(value)
    elif isinstance(answer, list):
        for item in answer:
            yield from about_things(item)


if ALL:

    @pytest.fixture(scope="module")
    def open_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
        """Beside Apache Kafka 3.9.1, where everybody may do what nobody has a right to."""
        # Old versions of Metadata would create topics here, and the next answer depend on how soon.
        open_ones = {"allow.everyone.if.no.acl.found": "true", "auto.create.topics.enable": "false"}
        settings = {**SETTINGS, **open_ones}
        with (
            apache_side(tmp_path_factory.mktemp("apache"), settings) as apache,
            our_side(tmp_path_factory.mktemp("ours"), settings) as ours,
        ):
            yield Sides(apache, ours)

    @pytest.mark.interop
    @pytest.mark.java
    @needs_reference
    @pytest.mark.parametrize("question", OF_3, ids=names)
    def test_what_nobody_has_a_right_to_is_allowed_to_everybody_as_by_apache(
        open_sides: Sides, question: Question
    ) -> None:
        """An entry for another user, or for a name that looks alike, closes what it is about."""
        open_sides.compare(question, states(question))

    @pytest.fixture(scope="module")
    def newer_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
        """Beside Apache Kafka 4.4.0."""
        with both(tmp_path_factory, newer_apache_side, FIRST_OF_4) as running:
            yield running

    @pytest.mark.interop
    @pytest.mark.java
    @needs_reference
    @pytest.mark.parametrize(
        "question", [one for one in QUESTIONS if one.last >= FIRST_OF_4.get(one.api, NEVER)], ids=names
    )
    def test_versions_of_kafka_4_ask_for_the_rights_that_they_need_there(
        newer_sides: Sides, question: Question
    ) -> None:
        """Beside StandardAuthorizer. Of ALL operations on a group, Kafka 4 knows more."""
        newer_sides.compare(question, (state for state in states(question) if state.name != "to ALL"))


def differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """The fields that differ: Apache's value and ours."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [line for name, value in theirs.items() for line in differences(value, ours.get(name), f"{path}.{name}")]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{path}[{place}]")]
    return [] if theirs == ours else [f"{path or 'answer'}: apache {theirs!r}, ours {ours!r}"]


def test_the_matrix_has_a_question_for_each_api_that_our_brokers_serve() -> None:
    """Except for those of the login, which come before there is a principal."""
    assert {question.api for question in QUESTIONS} | OF_THE_LOGIN == set(load_handlers())

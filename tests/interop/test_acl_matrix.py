"""Who may do what, on Apache Kafka 3.9.1 and on ours: each API that both serve, in each version,
with all rights, with none, with each right missing or denied, and with rights on names that only
look alike. Answers are compared field by field.

CI asks the highest version of each API in the basic states; BARNABAS_RIGHTS=all asks all.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.apis import load_handlers
from barnabas.wire.kafka.api import ApiKey
from support import acl_admin_questions, acl_group_questions, acl_record_questions
from support.acl_rights import Question, State, basic_states, further_states
from support.acl_sides import Side, apache_side, our_side, served
from support.needs import needs_reference

ALL = os.environ.get("BARNABAS_RIGHTS") == "all"
QUESTIONS = [
    *acl_record_questions.QUESTIONS,
    *acl_group_questions.QUESTIONS,
    *acl_admin_questions.QUESTIONS,
]
OF_THE_LOGIN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Served to those who have no name yet."""
apache = [pytest.mark.interop, pytest.mark.java, needs_reference]


class Sides:
    """Both clusters, and the versions that both serve."""

    def __init__(self, apache: Side, ours: Side) -> None:
        self.apache = apache
        self.ours = ours
        self.served = served((apache, ours))

    def versions(self, question: Question) -> list[int]:
        """Those to ask: all, or the highest."""
        known = [n for n in self.served[question.api] if question.first <= n <= question.last]
        return known if ALL else known[-1:]

    def set(self, state: State) -> None:
        for side in (self.apache, self.ours):
            side.set_acls(state.entries)

    def answers(self, question: Question, version: int) -> tuple[Any, Any]:
        """Apache's and ours."""
        theirs, ours = (ask(side, question, version) for side in (self.apache, self.ours))
        return theirs, ours


def ask(side: Side, question: Question, version: int) -> Any:
    """The answer to the user under test, comparable."""
    question.prepare(side)
    return side.comparable(side.user.ask(question.make(side, version), version))


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Both, with the same topics, groups and transactional ids."""
    with (
        apache_side(tmp_path_factory.mktemp("apache")) as apache,
        our_side(tmp_path_factory.mktemp("ours")) as ours,
    ):
        yield Sides(apache, ours)


def states(question: Question) -> Iterator[State]:
    """Those to try."""
    yield from basic_states(question)
    if ALL and question.rights:
        yield from further_states(question)


def names(question: Question) -> str:
    return f"{question.name}: {' and '.join(map(str, question.rights)) or 'no right'}"


class TestMatrix:
    """Beside Apache's broker."""

    pytestmark = apache

    @pytest.mark.parametrize("question", QUESTIONS, ids=names)
    def test_each_right_is_asked_for_as_by_apache(self, sides: Sides, question: Question) -> None:
        """The two answer alike; and where a right is missing, otherwise than with all rights."""
        versions = sides.versions(question)
        assert versions, "no version that both serve"
        different = []
        seen: dict[tuple[str, int], Any] = {}
        basic = {state.name for state in basic_states(question)}
        for state in states(question):
            sides.set(state)
            # What matters of further states is the decision, which is the same in all versions.
            for version in versions if state.name in basic else versions[-1:]:
                theirs, ours = sides.answers(question, version)
                seen[state.name, version] = theirs
                if ours != theirs:
                    different.append((state.name, version, *differences(theirs, ours)))
        assert not different, "\n".join(map(str, [f"{len(different)} answers differ", *different[:20]]))
        if question.rights:
            assert all(seen["none", version] != seen["all", version] for version in versions)


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

"""Dubbo's registry on an ensemble of ours: a consumer asks the providers that are registered,
through kills of a provider and of the ensemble's leader."""

import contextlib
import re
from pathlib import Path

import pytest

from support.ensemble import serving_ensemble
from support.maven import QUICK, compiled, jars
from support.needs import ROOT, needs
from support.ports import free_ports
from support.restartable import Restartable, restartable
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs("java", "javac", "mvn"), pytest.mark.timeout(600)]

PROGRAM = ROOT / "tests" / "other_languages" / "java" / "dubbo"
LIMIT_S = 60
FEW = 20


def test_a_consumer_asks_those_that_are_registered_after_kills(tmp_path: Path) -> None:
    """A killed provider is forgotten; one that comes while the ensemble's leader is dead is
    found, and so is the killed one when it is back. No call fails: each is tried at
    another provider."""
    folder = jars("dubbo-3.3.5", PROGRAM)
    with serving_ensemble(tmp_path) as members, contextlib.ExitStack() as stack:
        first, *others = members.addresses.split(",")
        registry = f"zookeeper://{first}?backup={','.join(others)}&timeout=30000&session=6000"
        command = ["java", *QUICK, "-Xmx128M", "-cp", compiled(PROGRAM / "Greetings.java", folder, tmp_path)]
        command += [f"-Duser.home={tmp_path}", "-Ddubbo.application.logger=slf4j", "Greetings", registry]
        ports = dict(zip("abc", free_ports(3), strict=True))

        def provider(name: str) -> Restartable:
            return stack.enter_context(restartable([*command, "provider", name, ports[name]], tmp_path / name))

        providers = {name: provider(name) for name in "ab"}
        consumer = stack.enter_context(restartable([*command, "consumer"], tmp_path / "consumer"))

        def until_asked(names: str) -> None:
            """Wait until these have answered each of the next calls, and no other."""

            def asked() -> bool:
                answers = re.findall(r"^answer of (.)$", consumer.output(), re.MULTILINE)
                return len(answers) > FEW and set(answers[-FEW:]) == set(names)

            eventually(asked, timeout_s=LIMIT_S, what=f"{names} are asked, and no other")

        until_asked("ab")
        providers["a"].kill()
        until_asked("b")
        members.kill_leader()
        until_asked("b")
        providers["c"] = provider("c")
        until_asked("bc")
        providers["a"].start()
        until_asked("abc")
        assert "no answer" not in consumer.output()
        with members.client(*(number for number, each in members.members.items() if each.process)) as client:
            registered = client.get_children("/services/provider")
        assert len(registered) == len(providers)

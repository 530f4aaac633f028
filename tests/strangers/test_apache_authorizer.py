"""Apache Kafka's own tests of its authorizer, against our broker."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.apache_harness import run_apache_tests
from support.needs import needs, needs_reference

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, needs("mvn"), pytest.mark.timeout(3600)]

CLASS = "kafka.api.AuthorizerIntegrationTest"
DIFFERENT = {
    # An UpdateMetadata of controller epoch 2^31 - 1, which would lock the real controller out.
    "testAuthorizationWithTopicExisting": "EOFException",
}
"""Tests that ask for what is refused on purpose, and how they end."""
SELECTED = os.environ.get("BARNABAS_APACHE_TESTS", "")


@pytest.mark.skipif(not SELECTED, reason="a trial: BARNABAS_APACHE_TESTS=all, or names of tests")
def test_apaches_tests_of_the_authorizer_pass(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Those of AuthorizerIntegrationTest that run with ZooKeeper, but for what is different on
    purpose."""
    wanted = [CLASS] if SELECTED == "all" else [f"{CLASS}#{name}" for name in SELECTED.split(",")]
    outcomes = run_apache_tests(tmp_path, *wanted)
    failed = {name: why for name, why in outcomes.items() if not _is_expected(name.split()[0], why)}
    passed = sum(not why for why in outcomes.values())
    different = len(outcomes) - passed - len(failed)
    record_property("Apache's tests", f"{passed} of {len(outcomes)} passed, {different} different on purpose")
    assert outcomes
    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())


def _is_expected(name: str, why: str) -> bool:
    """Whether a test ended as it should; ``why`` is "" where it passed."""
    return DIFFERENT[name] in why if name in DIFFERENT else not why

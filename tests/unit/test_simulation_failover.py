"""The story of a broker's death, which docs/contributing/failover.txt has for one seed."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulation.scenarios.failover import SEED, failover_trace

STORED = Path(__file__).parents[2] / "docs" / "contributing" / "failover.txt"
STORY = (
    r"client +creates topic orders",
    r"znode .*/partitions/0/state: leader (?P<old>\d), ISR \[.*\], leader epoch 0",
    r"client +'one' to broker (?P=old): acknowledged at offset 0",
    r"client +'three' to broker (?P=old): acknowledged at offset 2",
    r"broker-(?P=old) +KILLED",
    r"znode +/brokers/ids/(?P=old) removed",
    r"znode .*/partitions/0/state: leader (?!(?P=old))\d, ISR \[\d, \d\], leader epoch [12]",
    r"client +'four' to broker \d: acknowledged at offset 3",
    r"broker-(?P=old) +STARTED AGAIN",
    r"znode +/brokers/ids/(?P=old) created",
    r"broker-(?P=old) +follows orders-0",
    r"broker-(?P=old) +log end offset 4, high watermark 4",
    r"znode .*/partitions/0/state: leader \d, ISR \[\d, \d, \d\]",
)


def missing_from(lines: Sequence[str]) -> str | None:
    """The first event of `STORY` that does not come after the one before it; None if all do."""
    groups: dict[str, str] = {}
    left = iter(lines)
    for event in STORY:
        pattern = event
        for name, value in groups.items():
            pattern = pattern.replace(f"(?P={name})", value)
        found = next((match for line in left if (match := re.search(pattern, line))), None)
        if found is None:
            return pattern
        groups |= found.groupdict()
    return None


@pytest.mark.parametrize("seed", [1, SEED])
def test_a_killed_leader_is_replaced_and_comes_back(seed: int) -> None:
    """Whether it was the controller, too, or not; the same seed gives the same lines."""
    lines = failover_trace(seed)
    assert missing_from(lines) is None, "\n".join(lines)
    assert failover_trace(seed) == lines


def test_the_stored_trace_has_the_story() -> None:
    """It was printed by `python -m simulation.scenarios.failover`; times may differ
    after changes of the code."""
    lines = STORED.read_text().splitlines()
    assert missing_from(lines) is None
    assert "KILLED" in (missing_from([line for line in lines if "KILLED" not in line]) or "")

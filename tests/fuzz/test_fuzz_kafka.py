"""A short, repeatable run of each fuzz target of the Kafka protocol."""

import importlib
import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.mark.parametrize("target", ["fuzz_kafka_messages", "fuzz_kafka_batches"])
def test_a_target_survives_damage(target: str) -> None:
    """A few thousand damaged inputs, the same in every run."""
    module = importlib.import_module(target)
    for seed in range(3000):
        module.fuzz(module.seed_input(Random(seed)))

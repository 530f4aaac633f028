"""A short, repeatable run of the fuzz target of ZooKeeper's protocol and files."""

import importlib
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))


def test_the_readers_survive_damage() -> None:
    """A few thousand damaged inputs, the same in every run."""
    module = importlib.import_module("fuzz_jute")
    for seed in range(5000):
        module.fuzz(module.seed_input(Random(seed)))

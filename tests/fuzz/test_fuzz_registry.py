"""A short, repeatable run of the fuzz target of the registry's formats of schemas."""

import importlib
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))


def test_the_parsers_of_schemas_survive_damage() -> None:
    """A few thousand damaged schemas, the same in every run."""
    module = importlib.import_module("fuzz_registry_formats")
    for seed in range(3000):
        module.fuzz(Random(seed))

"""What programs import, and what pickles name, stays where it is:
docs/reference/import-paths.md has the list."""

import importlib
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import barnabas.client
from barnabas.client import Delivery, Record, TopicPartition
from barnabas.client.admin import Acl, FoundOffset, TopicDescription

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "import-paths.md").read_text()
ROWS = {
    module: re.findall(r"`(\w+)`", names)
    for module, names in re.findall(r"^\| `([\w.]+)` \| (`.*`) \|$", PAGE.split("## ")[0], re.MULTILINE)
}
NEEDS = {"barnabas.pipelines": "pyspark", "pyspark_barnabas": "pyspark"}


@pytest.mark.parametrize("module", ROWS)
def test_each_name_of_the_page_can_be_imported(module: str) -> None:
    """In a process that has imported nothing before."""
    for package, needed in NEEDS.items():
        if module.startswith(package):
            pytest.importorskip(needed)
    subprocess.run([sys.executable, "-c", f"from {module} import {', '.join(ROWS[module])}"], check=True)


@pytest.mark.parametrize("module", ["barnabas.client", "barnabas.client.admin", "barnabas.testing", "barnabas.mirror"])
def test_the_page_has_each_name_that_a_package_offers(module: str) -> None:
    """A name that is new there, or gone, changes the page."""
    assert set(ROWS[module]) == set(importlib.import_module(module).__all__)


def test_entry_points_are_those_of_the_page() -> None:
    """pip makes the command and pytest loads the plugin by these names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"barnabas": "barnabas.__main__:main"}
    assert project["entry-points"] == {"pytest11": {"pytest_barnabas": "pytest_barnabas"}}
    assert "DefaultSource" in ROWS["pyspark_barnabas"]


def test_a_pickle_of_an_earlier_version_is_loaded() -> None:
    """It names modules as they were before they had rooms."""
    data = (ROOT / "tests" / "support" / "kept" / "client.pickle").read_bytes()
    assert b"barnabas.client.topics" in data
    kept = pickle.loads(data)
    assert len(kept) == 33
    headers = [("trace", b"1")]
    assert kept["record"] == Record(
        "orders", 0, 42, "table-7", {"item": "espresso"}, 1700000000000, 0, headers, leader_epoch=3
    )
    assert kept["delivery"] == Delivery("orders", 0, 42, 1700000000000)
    assert kept["partition"] == TopicPartition("orders", 0)
    assert kept["JSON"].decode(kept["JSON"].encode({"a": 1})) == {"a": 1}
    assert (type(kept["Acl"]), type(kept["FoundOffset"])) == (Acl, FoundOffset)
    assert type(kept["TopicDescription"]) is TopicDescription
    assert type(kept["UnknownSchemaError"]) is barnabas.client.UnknownSchemaError


def test_a_former_module_has_the_names_of_the_one_that_it_became() -> None:
    """And no others."""
    former = importlib.import_module("barnabas.client.topics")
    assert former.TopicDescription is TopicDescription
    with pytest.raises(AttributeError):
        _ = former.no_such_name

"""The schema registry that ``barnabas up`` starts, and how it follows the cluster."""

from pathlib import Path

import pytest
from test_cli_up_plan import edit, plan, start, texts

from barnabas.base.errors import BarnabasError
from barnabas.cli.local.cluster_plan import ClusterPlan
from barnabas.cli.local.service_plans import ServicePlan
from barnabas.cli.machine.server_names import log_of, server_of, server_title
from support.needs import needs

FILE = "schema-registry.properties"


def registry_of(made: ClusterPlan) -> ServicePlan | None:
    """The registry of a plan."""
    return next((each for each in made.services if each.name == "registry"), None)


def test_without_the_option_there_is_none(tmp_path: Path) -> None:
    """A registry needs an extra."""
    assert registry_of(plan(tmp_path)) is None


def test_a_registry_of_a_data_dir_is_started_again_as_it_was(tmp_path: Path) -> None:
    """With what was edited by hand."""
    made = registry_of(start(tmp_path, "--registry", "18081", "--brokers", "2", "--port", "19092"))
    assert made is not None
    assert (made.url, str(made.address)) == ("http://127.0.0.1:18081", "127.0.0.1:18081")
    assert texts(tmp_path, FILE)["kafkastore.topic.replication.factor"] == "2"
    edit(tmp_path / FILE, "replication.factor=2", "replication.factor=1\nschema.compatibility.level=FULL")
    again = registry_of(start(tmp_path))
    assert again is not None
    assert again.url == made.url
    assert texts(tmp_path, FILE) == {
        "listeners": "http://127.0.0.1:18081",
        "kafkastore.bootstrap.servers": "127.0.0.1:19092,127.0.0.1:19093",
        "kafkastore.topic.replication.factor": "1",
        "schema.compatibility.level": "FULL",
    }


def test_a_registry_follows_the_brokers_to_other_ports(tmp_path: Path) -> None:
    """And goes to another one itself when it is asked to."""
    start(tmp_path, "--registry", "18081", "--port", "19092")
    start(tmp_path, "--port", "29092")
    assert texts(tmp_path, FILE)["kafkastore.bootstrap.servers"] == "127.0.0.1:29092"
    moved = registry_of(start(tmp_path, "--registry", "18082"))
    assert moved is not None
    assert moved.url == "http://127.0.0.1:18082"


@needs("openssl")
def test_a_registry_is_secured_as_the_brokers_are(tmp_path: Path) -> None:
    """From the first start on, or later; and no longer when they are not."""
    start(tmp_path, "--registry", "18081")
    secured = registry_of(start(tmp_path, "--secure"))
    assert secured is not None
    assert secured.url == "https://127.0.0.1:18081"
    found = texts(tmp_path, FILE)
    assert found["authentication.method"] == "BASIC"
    assert (found["authorization.acls"], found["authorization.super.users"]) == ("true", "admin")
    assert found["kafkastore.security.protocol"] == "SASL_SSL"
    users = Path(found["authentication.users.file"])
    assert set(texts(users.parent, users.name)) == {"admin", "app"}
    assert users.stat().st_mode & 0o077 == 0
    open_again = registry_of(start(tmp_path, "--security", "PLAINTEXT"))
    assert open_again is not None
    assert open_again.url == "http://127.0.0.1:18081"
    assert not [name for name in texts(tmp_path, FILE) if "ssl" in name or "auth" in name or "security" in name]


def test_a_file_without_an_address_is_an_error_that_names_it(tmp_path: Path) -> None:
    """It was edited by hand."""
    start(tmp_path, "--registry", "18081")
    edit(tmp_path / FILE, "listeners=http://127.0.0.1:18081\n", "")
    with pytest.raises(BarnabasError, match=FILE):
        plan(tmp_path)


def test_the_registrys_file_and_log_have_its_name() -> None:
    """Commands find it by them."""
    assert server_of(FILE) == "registry"
    assert server_title("registry") == "the schema registry"
    assert log_of(Path("logs"), "registry") == Path("logs/registry.log")

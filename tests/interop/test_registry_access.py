"""Who may use the schema registry: https, passwords, tokens, users who may only read, and the
cluster's own access control lists."""

import json
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from barnabas.base.errors import ConfigError
from barnabas.testing import Cluster
from barnabas.testing.registry import ClusterRegistry, registry_properties
from support.registries import ask, avro_record, register

pytestmark = [pytest.mark.interop]

USERS = {"ann": "b-secret", "bob": "c-secret"}
ACLS = [
    "--allow-principal User:ann --operation All --topic orders",
    "--allow-principal User:ann --operation All --group * --transactional-id *",
    "--allow-principal User:bob --operation Read --topic orders",
]
SCHEMA = Schema(json.dumps(avro_record("Order")), "AVRO")


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    """A cluster with TLS, users and access control lists, and its registry."""
    with Cluster(registry=True, security="SASL_SSL", users=USERS, acls=ACLS) as made:
        yield made


def client(cluster: Cluster, user: str) -> SchemaRegistryClient:
    return SchemaRegistryClient(cluster.registry.client_properties(user))


def code_of(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


class TestSecuredCluster:
    def test_user_with_the_topics_rights_registers_and_another_one_reads(self, secured: Cluster) -> None:
        """The subject is protected as its topic."""
        schema_id = client(secured, "ann").register_schema("orders-value", SCHEMA)
        bob = client(secured, "bob")
        assert bob.get_schema(schema_id).schema_type == "AVRO"
        assert bob.get_latest_version("orders-value").schema_id == schema_id
        with pytest.raises(SchemaRegistryError) as refused:
            bob.register_schema("orders-value", Schema('"int"', "AVRO"))
        assert code_of(refused) == (403, 40301)

    def test_subject_without_a_right_is_not_seen(self, secured: Cluster) -> None:
        """Not in lists, not by its name, and not by its id."""
        ann = client(secured, "ann")
        with pytest.raises(SchemaRegistryError) as refused:
            ann.register_schema("salaries-value", SCHEMA)
        assert code_of(refused) == (403, 40301)
        admin = client(secured, "admin")
        schema_id = admin.register_schema("salaries-value", Schema(json.dumps(avro_record("Salary")), "AVRO"))
        assert "salaries-value" in admin.get_subjects()
        assert "salaries-value" not in ann.get_subjects()
        with pytest.raises(SchemaRegistryError) as hidden:
            ann.get_schema(schema_id)
        assert code_of(hidden) == (403, 40301)

    def test_schema_cannot_refer_to_a_subject_without_a_right(self, secured: Cluster) -> None:
        """An error of the registry would say what is in it."""
        reference = SchemaReference("Wage", "wages-value", 1)
        with pytest.raises(SchemaRegistryError) as refused:
            client(secured, "ann").register_schema("orders-value", Schema('"string"', "AVRO", [reference]))
        assert code_of(refused) == (403, 40301)

    def test_global_configuration_needs_a_right_on_the_cluster(self, secured: Cluster) -> None:
        """Those of the own topics do not."""
        ann = client(secured, "ann")
        with pytest.raises(SchemaRegistryError) as refused:
            ann.set_compatibility(level="NONE")
        assert code_of(refused) == (403, 40301)
        assert ann.set_compatibility("orders-value", "NONE") == {"compatibility": "NONE"}

    def test_request_without_credentials_is_refused(self, secured: Cluster) -> None:
        """Whatever it asks for, also what does not exist."""
        properties = secured.registry.client_properties()
        context = ssl.create_default_context(cafile=properties["ssl.ca.location"])
        for path in ("subjects", "nothing", ""):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{secured.registry.url}/{path}", context=context)
            assert refused.value.code == 401
            assert refused.value.headers["WWW-Authenticate"].startswith("Basic")
            refused.value.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker without protection."""
    with Cluster() as made:
        yield made


class TestTokens:
    def test_token_names_a_user_and_some_users_may_only_read(self, cluster: Cluster, tmp_path: Path) -> None:
        """A wrong token is no user."""
        tokens = tmp_path / "tokens.properties"
        tokens.write_text("writer=w-token\nreader=r-token\n")
        registry = ClusterRegistry(
            {
                **registry_properties(cluster.bootstrap_servers, 1, None, 0),
                "authentication.method": "BEARER",
                "authentication.tokens.file": str(tokens),
                "authentication.read.only.users": "reader",
            }
        )
        try:
            path = f"{registry.url}/config"
            put = {"compatibility": "NONE"}
            assert ask(path, Authorization="Bearer x").status == 401
            assert ask(path, Authorization="Bearer r-token").status == 200
            assert ask(path, "PUT", put, Authorization="Bearer r-token").status == 403
            assert ask(path, "PUT", put, Authorization="Bearer w-token").status == 200
        finally:
            registry.stop()


class TestLimits:
    def test_read_only_instance_refuses_what_writes_and_answers_the_rest(self, cluster: Cluster) -> None:
        """It never leads either."""
        writer = ClusterRegistry(registry_properties(cluster.bootstrap_servers, 1, None, 0))
        texts = registry_properties(cluster.bootstrap_servers, 1, None, 0)
        reader = ClusterRegistry({**texts, "read.only": "true", "size.limit.filter.max.request.body.size": "1000"})
        try:
            assert register(writer.url, "s", avro_record("R")).status == 200
            assert register(reader.url, "s", avro_record("R")).status == 403
            assert ask(f"{reader.url}/config").status == 200
            assert ask(f"{reader.url}/subjects/s", "POST", {"schema": " " * 2000}).status == 413
            assert ask(f"{writer.url}/subjects/s", "POST", b"{").code == 400
            assert ask(f"{writer.url}/subjects/s", "POST", b"").status == 422
            assert ask(f"{writer.url}/nothing").body == {"error_code": 404, "message": "HTTP 404 Not Found"}
            assert ask(f"{writer.url}/subjects", "PATCH").status == 405
            assert ask(f"{writer.url}/subjects", Accept="text/html").status == 406
            assert ask(f"{writer.url}/subjects/s", "POST", b"x", Content_Type="text/plain").status == 415
        finally:
            reader.stop()
            writer.stop()

    def test_address_that_is_taken_stops_the_start(self, cluster: Cluster) -> None:
        """Before a topic is made."""
        texts = registry_properties(cluster.bootstrap_servers, 1, None, 0)
        running = ClusterRegistry(texts)
        try:
            with pytest.raises(Exception, match="choose another address"):
                ClusterRegistry({**texts, "listeners": running.url})
            with pytest.raises(ConfigError, match="ssl.keystore.location"):
                ClusterRegistry({**texts, "listeners": "https://127.0.0.1:0"})
        finally:
            running.stop()


@pytest.mark.parametrize("security", ["SASL_SSL", "SSL"])
def test_follower_forwards_over_https_as_the_user_who_asked(security: str) -> None:
    """It verifies the leader; with certificates it shows its own."""
    users = {"ann": "b-secret"} if security == "SASL_SSL" else None
    with Cluster(registry=True, security=security, users=users) as cluster:
        texts = registry_properties(cluster.bootstrap_servers, 1, cluster._security, 0)
        follower = ClusterRegistry({**texts, "leader.eligibility": "false"}, cluster._security)
        try:
            client = SchemaRegistryClient(follower.client_properties())
            assert client.register_schema("orders-value", SCHEMA) == 1
        finally:
            follower.stop()

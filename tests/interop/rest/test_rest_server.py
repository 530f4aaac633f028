"""The REST proxy as a server: its limits, a cluster that is away, users of a secured one, the
command and its page."""

import ssl
import subprocess
import sys
import time
from pathlib import Path

from barnabas.client import Admin
from barnabas.client.admin.acls import Acl
from barnabas.testing import Cluster
from support.pages import DOCS, blocks
from support.ports import free_ports
from support.reader import Reader
from support.rest_web import TIMEOUT_S, Events, Web, instance, limited, read, text


def test_what_is_too_large_or_too_many_is_refused(cluster: Cluster, topic: str) -> None:
    """Bodies, records of a stream, instances, and event streams."""
    limits = {
        "max_request_bytes": "2000", "consumer_instances_max": "1", "event_streams_max": "1",
        "api_v3_produce_request_size_limit_max_bytes": "1000",
    }  # fmt: skip
    with limited(cluster, **limits) as web:
        large = {"topic_name": "x" * 3000}
        assert web.v3("POST", "/topics", large).status == 413
        first, last = web.produce(topic, text("a"), text("b" * 1500))
        assert (first["error_code"], last["error_code"]) == (200, 413)
        with instance(web, "limited"):
            assert web.ask("POST", "/consumers/limited", {}).status == 429
        stream = Events(web, topic)
        assert web.v3("GET", f"/topics/{topic}/records").status == 429
        stream.close()


def test_a_proxy_and_a_registry_that_are_stopped_let_the_cluster_stop() -> None:
    """A test may stop them before the cluster does."""
    with Cluster(rest=True, registry=True) as cluster:
        cluster.rest.stop()
        cluster.registry.stop()


def test_an_instance_that_is_not_used_ends_and_leaves_its_group(cluster: Cluster, topic: str) -> None:
    """Its partitions are free for others."""
    with limited(cluster, consumer_instance_timeout_ms="300") as web:
        made = web.ask("POST", "/consumers/short", {"name": "i"})
        web.ask("POST", "/consumers/short/instances/i/subscription", {"topics": [topic]})
        assert made.status == 200
        end = time.monotonic() + TIMEOUT_S
        # Asking would use it.
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            while time.monotonic() < end and admin.describe_group("short").members:
                time.sleep(0.05)
            assert not admin.describe_group("short").members
        while web.ask("POST", "/consumers/short", {"name": "i"}).status != 200:
            assert time.monotonic() < end
            time.sleep(0.5)


def test_a_cluster_that_is_away_is_an_error_and_comes_back(cluster: Cluster) -> None:
    """Requests end in their time; the same proxy and its open streams go on afterwards."""
    with Cluster() as other:
        with Admin({"bootstrap.servers": other.bootstrap_servers}) as admin:
            admin.create_topic("t")
        with limited(other, client_timeout_ms="1500", producer_delivery_timeout_ms="1500") as web:
            assert web.produce("t", text("a"))[0]["error_code"] == 200
            stream = Events(web, "t", "format=string")
            stream.records(0)
            other.stop_broker(0)
            assert web.v3("GET", "/topics").code == 50003
            assert web.produce("t", text("b"))[0]["error_code"] == 50003
            other.start_broker(0)
            end = time.monotonic() + TIMEOUT_S
            while web.v3("GET", "/topics").status != 200:
                assert time.monotonic() < end
            while web.produce("t", text("c"))[0]["error_code"] != 200:
                assert time.monotonic() < end
            values: list[str] = []
            while "c" not in values:  # what timed out may have arrived, too
                values += [each["value"] for each in stream.records(1)]
            stream.close()


def test_users_of_a_secured_cluster_have_their_own_rights_over_https() -> None:
    """The brokers check passwords and access control lists; no user has the proxy's own rights."""
    users = {"ann": "ann-secret", "bob": "bob-secret"}
    acls = [Acl("TOPIC", "orders", "User:ann", "ALL"), Acl("GROUP", "g", "User:ann", "ALL")]
    with Cluster(rest=True, security="SASL_SSL", users=users, acls=acls) as cluster:
        tls = ssl.create_default_context(cafile=str(Path(cluster.data_dir) / "security" / "broker.crt"))
        tls.check_hostname = False
        ann, bob, eve, nobody = (
            Web(cluster.rest.url, login, tls) for login in ("ann:ann-secret", "bob:bob-secret", "bob:wrong", None)
        )
        made = ann.v3("POST", "/topics", {"topic_name": "orders"})
        assert made.status == 201, made.body
        assert ann.produce("orders", text("x"))[0]["error_code"] == 200
        assert bob.v3("GET", "/topics/orders").status in (403, 404)
        assert bob.produce("orders", text("x"))[0]["error_code"] in (40301, 40403)
        assert "orders" not in bob.ask("GET", "/topics").json
        for each in (eve, nobody):
            refused = each.ask("GET", "/v3/clusters")
            assert (refused.status, refused.code) == (401, 401)
            assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")
        with instance(ann, "g", name="i") as path:
            assert bob.ask("GET", f"{path}/records").code == 40403
            ann.ask("POST", f"{path}/subscription", {"topics": ["orders"]})
            assert len(read(ann, path, 1, "binary")) == 1


def test_the_page_does_what_it_shows(tmp_path: Path) -> None:
    """rest-proxy.md: a cluster with a proxy, a record over HTTP, an instance, and the end."""
    (port,) = free_ports(1)
    reader = Reader(tmp_path, {"up --rest": f"up --rest {port}", "127.0.0.1:8082": f"127.0.0.1:{port}"})
    try:
        reader.follow(blocks(DOCS / "how-to" / "rest-proxy.md"))
    finally:
        reader.end()


def test_a_file_that_asks_for_more_protection_than_there_is_ends_the_start(tmp_path: Path) -> None:
    """The error names the property."""
    file = tmp_path / "kafka-rest.properties"
    file.write_text("bootstrap.servers=localhost:1\nlisteners=http://127.0.0.1:0\nauthentication.roles=admin\n")
    command = [sys.executable, "-m", "barnabas", "rest", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "authentication.roles" in done.stderr

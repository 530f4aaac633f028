"""Commands, contexts and `Admin` against a secured cluster of Apache Kafka's: TLS, SASL PLAIN and
SCRAM, client certificates."""

import asyncio
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import keyring
import pytest
from keyrings.alt.file import PlaintextKeyring

from barnabas.base.ids import TopicPartition
from barnabas.cli.connection.contexts import contexts_file
from barnabas.cli.main import main
from barnabas.client import BYTES, Admin, AsyncAdmin, AuthenticationError, ConnectError, Consumer, Producer
from barnabas.mirror import MirrorMaker, MirrorSettings, TopicFilter
from barnabas.mirror.replication_policy import ReplicationPolicy
from barnabas.mirror.settings import LinkSettings
from barnabas.testing import Cluster
from barnabas.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from support.certificates import STORE_PASSWORD, make_certificate, make_trust_store
from support.needs import needs_reference
from support.ports import free_ports
from support.reference import apache_cluster
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

PASSWORD = "one, two = three"
SERVER_JAAS = "org.apache.kafka.common.security.{}LoginModule required{};"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="' + PASSWORD + '";'
MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


@dataclass
class Secured:
    """A broker with a port for each protocol."""

    plain: str
    sasl: str
    ssl: str
    folder: Path

    def login(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """SASL over TLS, in the names of the Java clients."""
        trust = {
            "ssl.truststore.location": str(self.folder / "broker.trust.jks"),
            "ssl.truststore.password": STORE_PASSWORD,
        }
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "ann",
            "sasl.password": password,
            **trust,
        }

    def certificate(self) -> dict[str, str]:
        """TLS with a certificate on either side, in librdkafka's names."""
        names = {"location": "broker.crt", "certificate": "ann.crt", "key": "ann.key"}
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.folder / names["location"]),
            "ssl.certificate.location": str(self.folder / names["certificate"]),
            "ssl.key.location": str(self.folder / names["key"]),
            "ssl.key.password": "secret",
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker of Apache's."""
    folder = tmp_path_factory.mktemp("secured")
    make_certificate(folder, "broker", "/CN=broker")
    make_trust_store(folder / "broker.crt", "JKS")
    make_certificate(folder, "ann", "/CN=ann", password="secret")
    sasl, ssl = free_ports(2)
    sasl_ssl = "listener.name.sasl_ssl."
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ann.crt"),
        "listener.name.ssl.ssl.client.auth": "required",
        f"{sasl_ssl}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{sasl_ssl}plain.sasl.jaas.config": SERVER_JAAS.format("plain.Plain", f' user_ann="{PASSWORD}"'),
        **{f"{sasl_ssl}{name.lower()}.sasl.jaas.config": SERVER_JAAS.format("scram.Scram", "") for name in MECHANISMS},
        f"{sasl_ssl}connections.max.reauth.ms": "2000",
    }
    listeners = {"SASL_SSL": sasl, "SSL": ssl}
    with apache_cluster(folder / "cluster", settings=settings, listeners=listeners) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            add_users(admin)
        yield Secured(cluster.bootstrap, f"127.0.0.1:{sasl}", f"127.0.0.1:{ssl}", folder)


def add_users(admin: Admin) -> None:
    """Ann, for each SCRAM mechanism."""
    request = AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name="ann",
                mechanism=number,
                iterations=4096,
                salt=b"salt",
                salted_password=hashlib.pbkdf2_hmac(name, PASSWORD.encode(), b"salt", 4096),
            )
            for number, name in MECHANISMS.values()
        ]
    )
    controller = admin.describe_cluster().controller_id
    answer = admin.connection.send(request, AlterUserScramCredentialsResponse, controller)
    assert [result.error_code for result in answer.results] == [0]


@pytest.fixture
def settings_file(tmp_path: Path) -> Callable[[dict[str, str]], str]:
    """Writes a .properties file."""

    def write(settings: dict[str, str]) -> str:
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return str(path)

    return write


@pytest.mark.parametrize("mechanism", ["PLAIN", *MECHANISMS])
def test_a_secured_cluster_is_administered(
    mechanism: str,
    secured: Secured,
    settings_file: Callable[[dict[str, str]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Create, describe, groups: requests for any broker, for the controller and for
    a coordinator."""
    options = ["--bootstrap-server", secured.sasl, "--command-config", settings_file(secured.login(mechanism))]
    topic = f"by-{mechanism.lower()}"
    eventually(
        lambda: main(["topics", "--create", "--if-not-exists", "--topic", topic, *options]) == 0,
        timeout_s=60,
        what="the broker has the credentials",
    )
    assert main(["topics", "--list", *options]) == 0
    assert main(["consumer-groups", "--describe", "--group", "none-such", *options]) == 1
    assert main(["overview", *options]) == 0
    shown = capsys.readouterr()
    assert topic in shown.out.splitlines()
    assert secured.sasl in shown.out
    assert "Consumer group 'none-such' does not exist" in shown.err


def test_javas_login_and_the_asyncio_twin_work_too(secured: Secured) -> None:
    """sasl.jaas.config, as Java's clients have it."""
    settings = {**secured.login("PLAIN"), "bootstrap.servers": secured.sasl, "sasl.jaas.config": JAAS}
    del settings["sasl.username"], settings["sasl.password"]

    async def brokers() -> int:
        async with AsyncAdmin(settings) as admin:
            return len((await admin.describe_cluster()).brokers)

    assert asyncio.run(brokers()) == 1


def test_a_certificate_proves_who_the_client_is(secured: Secured) -> None:
    """With its key's password; without a certificate the broker refuses, and the
    error says what it wants."""
    settings = {**secured.certificate(), "bootstrap.servers": secured.ssl}
    with Admin(settings) as admin:
        assert len(admin.describe_cluster().brokers) == 1
    for name in ("ssl.certificate.location", "ssl.key.location", "ssl.key.password"):
        del settings[name]

    def is_refused() -> bool:
        try:
            with Admin(settings) as admin:
                admin.describe_cluster()
        except AuthenticationError as error:
            return "does not accept this client's certificate" in str(error)
        except ConnectError:  # a reset overtook the broker's alert
            return False
        return False

    eventually(is_refused, timeout_s=60, what="the broker's alert is read")


def test_columns_of_pipelines_travel_through_tls(secured: Secured) -> None:
    """Written and read by our own connections with SASL or a certificate; offsets are asked for and
    committed by librdkafka's."""
    pytest.importorskip("pyspark")
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from barnabas.pipelines.cluster.options import SinkOptions, SourceOptions
    from barnabas.pipelines.connector.column_producer import ColumnProducer, can_write
    from barnabas.pipelines.connector.data_source import SCHEMA, TopicStreamReader
    from barnabas.pipelines.connector.range_reader import can_read
    from barnabas.pipelines.progress.progress import GroupCommitter

    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"%03d" % n for n in range(500)], pa.binary())})
    with Admin({"bootstrap.servers": secured.plain}) as admin:
        admin.create_topic("columns", partitions=1)
    ways = [(secured.login("SCRAM-SHA-256"), secured.sasl), (secured.certificate(), secured.ssl)]
    for number, (settings, servers) in enumerate(ways, start=1):
        given = {f"kafka.{name}": text for name, text in {**settings, "bootstrap.servers": servers}.items()}
        sink = SinkOptions.parse({**given, "topic": "columns"})
        source = SourceOptions.parse({**given, "subscribe": "columns", "startingOffsets": "earliest"}, streaming=True)
        assert can_write(sink.kafka)
        assert can_read(source.kafka)
        writer = ColumnProducer(sink)
        assert writer.write([rows]) == 500
        writer.close()
        reader = TopicStreamReader(source, SCHEMA)
        start = reader.initialOffset()
        (partition,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        found = [int(value) for batch in reader.read(partition) for value in batch["value"].to_pylist()]
        assert found == [n for _ in range(number) for n in range(500)]
        committer = GroupCommitter(source.kafka, "columns", pytest.fail)
        committer.commit({TopicPartition("columns", 0): 500 * number})
        committer.close()


def test_credentials_that_are_not_accepted_are_reported_at_once(secured: Secured) -> None:
    """By the broker's word, not by a time-out."""
    for mechanism in ("PLAIN", *MECHANISMS):
        settings = {**secured.login(mechanism, "wrong"), "bootstrap.servers": secured.sasl}
        with Admin(settings) as admin, pytest.raises(AuthenticationError, match="the credentials of ann") as raised:
            admin.describe_cluster()
        assert raised.value.name == "SASL_AUTHENTICATION_FAILED"


def test_a_broker_that_cannot_prove_its_name_is_refused(secured: Secured, tmp_path: Path) -> None:
    """Another certificate than the trusted one, or one for another host."""
    make_certificate(tmp_path, "other", "/CN=broker")
    login = secured.login("PLAIN")
    for changed, servers in (
        ({"ssl.truststore.location": str(tmp_path / "other.crt")}, secured.sasl),
        ({}, secured.sasl.replace("127.0.0.1", "localhost")),
    ):
        settings = {**login, **changed, "bootstrap.servers": servers}
        with Admin(settings) as admin, pytest.raises(AuthenticationError, match="certificate is not accepted"):
            admin.describe_cluster()
    settings = {**login, "ssl.endpoint.identification.algorithm": "", "bootstrap.servers": secured.sasl}
    with Admin(settings) as admin:
        assert len(admin.describe_cluster().brokers) == 1


def test_a_protocol_that_the_port_does_not_speak_is_named(secured: Secured) -> None:
    """Each of the mistakes that one makes with ports and protocols."""
    sasl_alone = {**secured.login("PLAIN"), "security.protocol": "SASL_PLAINTEXT"}
    for settings, servers, message in (
        ({}, secured.sasl, "TLS"),
        (secured.login("PLAIN"), secured.plain, "no TLS handshake"),
        (sasl_alone, secured.plain, "does not authenticate on this port"),
        ({**secured.certificate(), "security.protocol": "SSL"}, secured.sasl, "closed the connection|broke"),
    ):
        with (
            Admin({**settings, "bootstrap.servers": servers, "default.api.timeout.ms": "1000"}) as admin,
            pytest.raises((AuthenticationError, ConnectError), match=message),
        ):
            admin.describe_cluster()


def test_a_mirror_between_named_clusters_logs_in(secured: Secured, barnabas_cluster: Cluster) -> None:
    """Its streams, and the link beside them that makes topics and translates offsets."""
    source = {**secured.login("SCRAM-SHA-256"), "bootstrap.servers": secured.sasl}
    target = {"bootstrap.servers": barnabas_cluster.bootstrap_servers}
    with Producer(source) as producer:
        producer.send_many("mirrored", map(str, range(10)))
    with Admin(source) as admin:
        admin.alter_group_offsets("shop", {TopicPartition("mirrored", 0): 10})
    link = LinkSettings(ReplicationPolicy("a", "b", has_prefixes=True), checkpoint_interval_ms=200)
    settings = MirrorSettings({**source, "group.id": "mirror"}, target, TopicFilter("mirrored"), link=link)
    maker = MirrorMaker(settings)
    maker.start()
    try:
        with Consumer(
            {**target, "auto.offset.reset": "earliest"}, deserializer=BYTES, key_deserializer=BYTES
        ) as consumer:
            for topic, records in (("a.mirrored", 10), ("a.checkpoints.internal", 1)):
                eventually(lambda topic=topic: topic in consumer.topics(), what=f"{topic} is made")
                consumer.assign([TopicPartition(topic, 0)])
                assert None not in [consumer.poll(60) for _ in range(records)]
    finally:
        maker.stop()
        maker.wait()


def test_an_authentication_that_ends_is_renewed(secured: Secured) -> None:
    """The broker closes connections that live on after its connections.max.reauth.ms."""
    with Admin({**secured.login("PLAIN"), "bootstrap.servers": secured.sasl}) as admin:
        admin.describe_cluster()
        before = list(admin.connection._links.values())

        def is_renewed() -> bool:
            assert len(admin.describe_cluster().brokers) == 1
            return list(admin.connection._links.values()) != before

        eventually(is_renewed, timeout_s=60, what="the connection is replaced before the broker closes it")


def test_a_contexts_password_is_in_the_keyring_and_opens_the_cluster(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file of ours has it; commands on either client library do; another cluster
    does not get it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    before = keyring.get_keyring()
    keyring.set_keyring(PlaintextKeyring())
    try:
        login = secured.login("PLAIN")
        del login["sasl.password"]
        properties = [word for name, value in login.items() for word in ("--property", f"{name}={value}")]
        add = ["context", "add", "staging", "--bootstrap-servers", secured.sasl, *properties]
        assert main([*add, "--secret", "sasl.password"]) == 0
        assert "sasl.password: kept in the keyring" in capsys.readouterr().err
        assert PASSWORD not in contexts_file().read_text()
        assert main(["topics", "--create", "--topic", "by-context"]) == 0
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"espresso\n")))
        assert main(["console-producer", "--topic", "by-context"]) == 0
        capsys.readouterr()
        assert main(["tail", "by-context", "--no-follow", "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["value"] == "espresso"
        assert main(["completion", "--words", "topics", "--topic", "by-con"]) == 0
        assert capsys.readouterr().out == "by-context\n"
        assert main(["topics", "--list", "--bootstrap-server", secured.plain]) == 0
        assert main(["context", "remove", "staging"]) == 0
        assert keyring.get_password("barnabas context staging", "sasl.password") is None
    finally:
        keyring.set_keyring(before)

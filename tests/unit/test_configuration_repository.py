"""Dynamic configuration in znodes: changed and followed in steps, also where a crash
ends them in between."""

import contextlib

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.cluster.steps import Read, Steps
from barnabas.broker.cluster.znodes import (
    CONFIG_CHANGES,
    config_path,
    decode_config,
    encode_config,
    encode_config_change,
)
from barnabas.broker.configuration import definitions
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.config_helper import ConfigHelper
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.repository import ConfigChange, ConfigRepository
from barnabas.broker.configuration.scram_credentials import ScramChange, ScramCredentials, check_changes
from barnabas.broker.configuration.stand_in_credentials import SECRET_BYTES
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from support.znode_steps import Znodes

LIFETIME_MS = 15 * 60 * 1000


class Broker:
    """One broker's configuration, and what it was informed of."""

    def __init__(self, znodes: Znodes, broker_id: int = 0, **settings: str) -> None:
        self.znodes = znodes
        config = BrokerConfig(definitions.DEFINITIONS.parse({"zookeeper.connect": "h:1", **settings}))
        self.configs = DynamicConfig(config, tuple)
        self.credentials = ScramCredentials(bytes([broker_id]) * SECRET_BYTES)
        self.repository = ConfigRepository(self.configs, self.credentials, broker_id, lambda: znodes.now_ms)
        self.applied: list[tuple[str, dict[str, str]]] = []
        self.configs.on_topic(self._topic_changed)
        znodes.perform(self.repository.load())
        self.applied.clear()

    def _topic_changed(self, topic: str, _: LogConfig) -> None:
        self.applied.append((topic, dict(self.configs.topic_texts(topic))))

    def look(self, stop_after: int | None = None) -> None:
        self.znodes.perform(self.repository.process_changes(), stop_after=stop_after)

    def alter(self, change: ConfigChange, *, stop_after: int | None = None, validate_only: bool = False) -> bool:
        """Whether the change was completed."""
        steps = self.repository.alter_topic("t", change, validate_only=validate_only)
        done = []

        def run() -> object:
            yield_ = yield from steps
            done.append(yield_)

        self.znodes.perform(run(), stop_after=stop_after)
        return bool(done)


def setting(**texts: str) -> ConfigChange:
    return lambda before: {**before, **{name.replace("_", "."): text for name, text in texts.items()}}


def stored(znodes: Znodes, path: str) -> dict[str, str]:
    return decode_config(path, znodes.data(path)) if path in znodes.nodes else {}


TOPIC = config_path("topics", "t")


def test_a_change_is_in_the_znode_and_holds_here_and_on_every_broker_that_sees_the_note() -> None:
    """Here at once, for the client is answered next."""
    znodes = Znodes()
    first, second = Broker(znodes, 0), Broker(znodes, 1)
    assert first.alter(setting(retention_ms="5"))
    assert stored(znodes, TOPIC) == {"retention.ms": "5"}
    assert first.applied == [("t", {"retention.ms": "5"})]
    assert second.applied == []
    second.look()
    assert second.applied == [("t", {"retention.ms": "5"})]


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_change_that_a_crash_ended_reaches_all_brokers_when_it_is_repeated(is_first: bool) -> None:
    """Whatever the step; what was there before stays until the new texts are
    written, and never half of them."""
    for stop_after in range(10):
        znodes = Znodes()
        before = {} if is_first else {"segment.ms": "1000"}
        if before:
            znodes.put(TOPIC, encode_config(before))
        other = Broker(znodes, 1)
        is_done = Broker(znodes, 0).alter(setting(retention_ms="5"), stop_after=stop_after)
        assert stored(znodes, TOPIC) in (before, {**before, "retention.ms": "5"})
        assert Broker(znodes, 0).alter(setting(retention_ms="5"))
        other.look()
        assert other.configs.topic_texts("t") == {**before, "retention.ms": "5"}
        if is_done:
            break
    assert is_done
    assert stop_after > 3


@pytest.mark.parametrize("exists", [True, False])
def test_a_change_that_meets_another_one_is_made_on_top_of_it(exists: bool) -> None:
    """Another broker wrote between the read and the write: neither is lost."""
    znodes = Znodes()
    if exists:
        znodes.put(TOPIC, encode_config({"segment.ms": "1000"}))
    calls = []

    def change(before: dict[str, str]) -> dict[str, str]:
        calls.append(before)
        if len(calls) == 1:
            znodes.put(TOPIC, encode_config({**before, "flush.ms": "7"}))
        return {**before, "retention.ms": "5"}

    assert Broker(znodes).alter(change)
    assert len(calls) == 2
    assert stored(znodes, TOPIC) == {**({"segment.ms": "1000"} if exists else {}), "flush.ms": "7", "retention.ms": "5"}


def test_a_change_whose_znode_goes_between_read_and_write_makes_it_again() -> None:
    """The topic was deleted and made again meanwhile."""
    znodes = Znodes()
    znodes.put(TOPIC, encode_config({"segment.ms": "1000"}))
    broker = Broker(znodes)
    calls = []

    def change(before: dict[str, str]) -> dict[str, str]:
        calls.append(before)
        if len(calls) == 1:
            znodes.remove(TOPIC)
        return {**before, "retention.ms": "5"}

    assert broker.alter(change)
    assert calls == [{"segment.ms": "1000"}, {}]
    assert stored(znodes, TOPIC) == {"retention.ms": "5"}


def test_what_is_only_validated_or_refused_writes_nothing() -> None:
    """No znode, no note; the code is Kafka's."""
    znodes = Znodes()
    broker = Broker(znodes)
    before = dict(znodes.nodes)
    assert broker.alter(setting(retention_ms="5"), validate_only=True)
    for change in (setting(retention_ms="x"), setting(no_such="1")):
        with pytest.raises(KafkaError) as error:
            broker.alter(change)
        assert error.value.code is ErrorCode.INVALID_CONFIG
    assert znodes.nodes == before


def test_each_note_is_worked_through_once_and_an_entity_once_for_all_of_its_notes() -> None:
    """A broker that starts has read everything, and does not apply old notes again."""
    znodes = Znodes()
    first, second = Broker(znodes, 0), Broker(znodes, 1)
    for number in range(3):
        assert first.alter(setting(retention_ms=str(number)))
    second.look()
    second.look()
    assert second.applied == [("t", {"retention.ms": "2"})]
    third = Broker(znodes, 2)
    third.look()
    assert third.applied == []
    assert third.configs.topic_texts("t") == {"retention.ms": "2"}


def test_old_notes_are_deleted_and_young_ones_stay() -> None:
    """After a quarter of an hour every broker that is alive has seen them."""
    znodes = Znodes()
    broker = Broker(znodes)
    assert broker.alter(setting(retention_ms="1"))
    znodes.now_ms = LIFETIME_MS
    assert broker.alter(setting(retention_ms="2"))
    assert len(znodes.children(CONFIG_CHANGES)) == 2
    znodes.now_ms += 1
    broker.look()
    assert znodes.children(CONFIG_CHANGES) == ["config_change_0000000001"]


def test_a_look_at_the_notes_that_a_crash_ended_is_made_up_for_by_the_next_start() -> None:
    """Whatever the step: the configuration of the znode holds then, and old notes go at last."""
    for stop_after in range(6):
        znodes = Znodes()
        writer, reader = Broker(znodes, 0), Broker(znodes, 1)
        assert writer.alter(setting(retention_ms="1"))
        znodes.now_ms = LIFETIME_MS + 1
        reader.look(stop_after)
        restarted = Broker(znodes, 1)
        assert restarted.configs.topic_texts("t") == {"retention.ms": "1"}
        assert znodes.children(CONFIG_CHANGES) == []


def test_a_note_that_cannot_be_read_does_not_keep_others(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once."""
    znodes = Znodes()
    broker = Broker(znodes)
    znodes.put(TOPIC, encode_config({"retention.ms": "1"}))
    znodes.put(f"{CONFIG_CHANGES}/config_change_0000000000", b"{")
    znodes.put(f"{CONFIG_CHANGES}/config_change_0000000001", encode_config_change("topics/t"))
    znodes.put(f"{CONFIG_CHANGES}/something_else", b"")
    broker.look()
    broker.look()
    assert broker.applied == [("t", {"retention.ms": "1"})]
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_a_brokers_own_properties_go_before_those_of_all_brokers() -> None:
    """Another broker's change nothing here."""
    znodes = Znodes()
    broker, other = Broker(znodes, 0), Broker(znodes, 1)
    for name, text in ((None, "1000"), (0, "2000"), (1, "3000")):
        change = setting(message_max_bytes=text)
        znodes.perform(broker.repository.alter_broker(name, change, validate_only=False))
        assert broker.configs.values["message.max.bytes"] == min(int(text), 2000)
    other.look()
    assert other.configs.values["message.max.bytes"] == 3000


def test_a_property_that_asks_for_protection_ends_the_start() -> None:
    """It was written while no broker looked."""
    znodes = Znodes()
    znodes.put(config_path("brokers", "<default>"), encode_config({"ssl.client.auth": "required"}))
    with pytest.raises(ConfigError, match=r"ssl\.client\.auth"):
        Broker(znodes)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("2048.5", "2048.5"), ("9999999", "9999999.0"), ("10000000", "1.0E7"), ("1234567890.5", "1.2345678905E9")],
)
def test_a_double_is_shown_as_java_prints_it(text: str, shown: str) -> None:
    """Tools that compare the configurations of brokers compare texts."""
    name = "log.cleaner.io.max.bytes.per.second"
    config = BrokerConfig(definitions.DEFINITIONS.parse({"zookeeper.connect": "h:1", name: text}))
    helper = ConfigHelper(0, config, DynamicConfig(config, tuple))
    (entry,) = helper.describe_broker(frozenset([name]), per_broker=True, with_synonyms=False, with_documentation=False)
    assert entry.value == shown


def test_a_user_whose_deletion_could_not_be_read_at_first_is_gone_with_the_next_look() -> None:
    """The note counts as seen when what it names was read, not before; with a new session
    all users are read again."""
    znodes = Znodes()
    writer, reader = Broker(znodes, 0), Broker(znodes, 1)
    change = ScramChange("ann", 1, 4096, b"salt", b"salted")
    znodes.perform(writer.repository.alter_user("ann", [change]))
    reader.look()
    assert reader.credentials.find("SCRAM-SHA-256", "ann") is not None
    znodes.perform(writer.repository.alter_user("ann", [ScramChange("ann", 1)]))
    for steps in range(1, 3):
        reader.look(stop_after=steps)
        assert reader.credentials.find("SCRAM-SHA-256", "ann") is not None
    reader.look()
    assert reader.credentials.find("SCRAM-SHA-256", "ann") is None
    znodes.perform(writer.repository.alter_user("bob", [change._replace(user="bob")]))
    reader.look()
    znodes.remove(config_path("users", "bob"))
    znodes.perform(reader.repository.reload_users())
    assert reader.credentials.find("SCRAM-SHA-256", "bob") is None


def test_a_listeners_property_that_a_hand_wrote_for_all_brokers_is_compared_with_nothing() -> None:
    """It is not in effect: with the file's value the broker starts again, with the
    hand's it does not."""
    znodes = Znodes()
    tls = {"listeners": "SSL://h:1", "inter.broker.listener.name": "SSL", "ssl.client.auth": "required"}
    broker = Broker(znodes, **tls)
    name = "listener.name.ssl.ssl.client.auth"
    broker.configs.update_broker_config({name: "none"}, {})
    with pytest.raises(KafkaError, match="cannot be changed while the broker runs"):
        znodes.perform(broker.repository.alter_broker(0, lambda _: {name: "none"}, validate_only=False))
    znodes.perform(broker.repository.alter_broker(0, lambda _: {name: "required"}, validate_only=False))
    assert Broker(znodes, **tls).configs.values["ssl.client.auth"] == "required"


def test_what_has_no_effect_on_a_broker_is_removed_or_stays_and_stops_no_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Passwords go, for there is no secret that decodes them; what Apache's brokers may obey stays,
    and is set by no other change."""
    znodes = Znodes()
    broker = Broker(znodes)
    password, store = "listener.name.external.ssl.key.password", "listener.name.external.ssl.keystore.type"
    path = config_path("brokers", "0")
    znodes.put(path, encode_config({password: "encryptedPassword=x", store: "PEM", "message.max.bytes": "many"}))
    znodes.put(config_path("brokers", "<default>"), encode_config({"log.retention.ms": "soon"}))
    znodes.perform(broker.repository.refresh(["brokers/0", "brokers/<default>"]))
    change = setting(log_cleaner_threads="2")
    znodes.perform(broker.repository.alter_broker(0, change, validate_only=True))
    assert password in stored(znodes, path)
    assert "Removed" not in caplog.text
    znodes.perform(broker.repository.alter_broker(0, change, validate_only=False))
    assert stored(znodes, path) == {"log.cleaner.threads": "2", store: "PEM"}
    assert broker.configs.values["log.cleaner.threads"] == 2
    assert caplog.text.count(f"Removed dynamic configuration {password}, which had no effect") == 1
    for name, text in ((store, "PEM"), (password, "encryptedPassword=x")):
        with pytest.raises(KafkaError, match="cannot be changed while the broker runs"):
            znodes.perform(
                broker.repository.alter_broker(0, lambda before, n=name, t=text: {**before, n: t}, validate_only=False)
            )
    znodes.perform(broker.repository.alter_broker(0, lambda _: {}, validate_only=False))
    assert stored(znodes, path) == {}


def test_a_look_reads_new_notes_and_the_oldest_however_many_there_are() -> None:
    """Three hundred altered topics do not read three hundred notes three hundred times; with many
    notes, looks have time between them."""
    znodes = Znodes()
    broker = Broker(znodes)
    for number in range(300):
        assert broker.alter(setting(retention_ms=str(number)))
    broker.look()
    assert broker.alter(setting(retention_ms="7"))
    reads: list[str] = []

    def counted() -> Steps[None]:
        steps, outcome = broker.repository.process_changes(), None
        with contextlib.suppress(StopIteration):
            while True:
                step = steps.send(outcome)
                if isinstance(step, Read):
                    reads.extend(path for path in step.paths if path.startswith(CONFIG_CHANGES))
                outcome = yield step

    znodes.pauses_ms.clear()
    znodes.perform(counted())
    assert len(reads) == 2, "the new one and the oldest"
    assert znodes.pauses_ms == [6]


def test_notes_whose_time_has_come_are_deleted_in_batches_up_to_the_first_that_stays() -> None:
    """Notes are in the order of their time, so none behind that is read."""
    znodes = Znodes()
    for number in range(1_000):
        znodes.put(f"{CONFIG_CHANGES}/config_change_{number:010}", encode_config_change("topics/t"))
    znodes.now_ms = LIFETIME_MS + 1
    broker = Broker(znodes)
    assert znodes.children(CONFIG_CHANGES) == []
    assert broker.alter(setting(retention_ms="7"))
    assert len(znodes.children(CONFIG_CHANGES)) == 1
    broker.look()
    assert len(znodes.children(CONFIG_CHANGES)) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([ScramChange("", 1), ScramChange("", 1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([ScramChange("ann", 9), ScramChange("ann", 9)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([ScramChange("ann", 9), ScramChange("ann", 1, 1, b"s", b"p")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (
            [ScramChange("ann", 1, 1, b"s", b"p"), ScramChange("ann", 9, 1, b"s", b"p")],
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ),
        ([ScramChange("ann", 1), ScramChange("ann", 1, 4096, b"s", b"p")], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
def test_a_wrong_credential_is_reported_before_a_duplicate_one(changes: list[ScramChange], code: ErrorCode) -> None:
    """Of several wrong ones of a user the last counts, as in the map of Apache's broker."""
    with pytest.raises(KafkaError) as refused:
        check_changes(changes)
    assert refused.value.code is code

"""What SCRAM answers for users who do not exist, so that it does not show who does."""

import hashlib
import logging
import re

import pytest

from barnabas.broker.configuration import definitions
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.dynamic_config import DynamicConfig
from barnabas.broker.configuration.repository import ConfigRepository
from barnabas.broker.configuration.scram_credentials import ScramCredentials, credential_text
from barnabas.broker.configuration.stand_in_credentials import (
    SECRET_BYTES,
    StandInCredentials,
    decode_secret,
    encode_secret,
)
from barnabas.client.admin.scram_users import salt_password
from barnabas.security.mechanisms import SCRAM_MECHANISMS
from barnabas.security.scram import ScramCredential, is_salt_text, salt_text, scram_credential
from support.znode_steps import Znodes

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
USERS = "/config/users"


def credential(salt: bytes = b"0123456789abcdefghijklmnop", iterations: int = 4096) -> ScramCredential:
    return scram_credential(SHA_256, bytes(32), salt, iterations)


class Broker:
    """What a broker knows of users, and how it comes to know it."""

    def __init__(self, znodes: Znodes, number: int) -> None:
        self.znodes = znodes
        config = BrokerConfig(definitions.DEFINITIONS.parse({"zookeeper.connect": "h:1"}))
        self.credentials = ScramCredentials(bytes([number]) * SECRET_BYTES)
        self.repository = ConfigRepository(DynamicConfig(config, tuple), self.credentials, number, lambda: 0)

    def load(self, stop_after: int | None = None) -> None:
        self.znodes.perform(self.repository.load(), stop_after=stop_after)

    def shown(self, user: str, mechanism: str = SHA_256) -> tuple[bytes, int]:
        """The salt and the iterations that a stranger sees."""
        stand_in = self.credentials.stand_ins.make(mechanism, user)
        found = self.credentials.find(mechanism, user) or stand_in
        return found.salt, found.iterations


def test_a_salt_follows_from_the_secret_the_mechanism_and_the_name() -> None:
    """The same question has the same answer; one who does not know the secret cannot compute it."""
    made, same, other = (StandInCredentials(secret * SECRET_BYTES) for secret in (b"a", b"a", b"b"))
    assert made.make(SHA_256, "eve") == same.make(SHA_256, "eve")
    names = ("eve", "Eve", "\uff45ve", "\u00e9ve", "e\u0301ve", "eve ", "SHA eve")
    salts = {made.make(mechanism, name).salt for mechanism in SCRAM_MECHANISMS for name in names}
    salts |= {other.make(mechanism, name).salt for mechanism in SCRAM_MECHANISMS for name in names}
    assert len(salts) == 4 * len(names)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_a_stand_in_has_the_form_of_what_tools_make(mechanism: str) -> None:
    """Kafka's tools salt with a number in base 36, and so do those here."""
    stand_ins = StandInCredentials(bytes(SECRET_BYTES))
    for number in range(50):
        made, (salt, _) = stand_ins.make(mechanism, f"user-{number}"), salt_password("x", mechanism, 4096)
        assert is_salt_text(made.salt)
        assert is_salt_text(salt)
        assert made.iterations == 4096
        assert len(made.stored_key) == len(made.server_key) == hashlib.new(SCRAM_MECHANISMS[mechanism].hash).digest_size


def test_a_stand_in_has_the_form_that_most_users_have_whatever_the_order_of_their_changes() -> None:
    """Salts of bytes, other iterations: a stranger cannot tell the few from the many by them."""
    users = {f"u{number}": credential(bytes(range(64)), 8192) for number in range(3)}
    users |= {f"k{number}": credential() for number in range(2)}
    forward, backward = ScramCredentials(bytes(SECRET_BYTES)), ScramCredentials(bytes(SECRET_BYTES))
    for name, found in users.items():
        forward.update(name, {SHA_256: credential_text(found)})
    for name, found in reversed(users.items()):
        backward.update(name, {SHA_256: credential_text(found)})
    for known in (forward, backward):
        made = known.stand_ins.make(SHA_256, "eve")
        assert (len(made.salt), made.iterations) == (64, 8192)
        assert is_salt_text(known.stand_ins.make(SHA_512, "eve").salt)
    forward.update("u0", {})
    backward.keep([name for name in users if name != "u0"])
    for known in (forward, backward):  # a tie: both choose the same
        assert known.stand_ins.make(SHA_256, "eve") == forward.stand_ins.make(SHA_256, "eve")
    forward.keep(["u1"])
    forward.update("u1", {})
    assert is_salt_text(forward.stand_ins.make(SHA_256, "eve").salt)


def test_users_without_a_credential_of_the_mechanism_are_unknown_to_it() -> None:
    """A user of the other mechanism, one who is deleted, and one who never was."""
    known = ScramCredentials(bytes(SECRET_BYTES))
    known.update("ann", {SHA_512: credential_text(credential())})
    known.update("bob", {SHA_256: credential_text(credential())})
    known.update("bob", {})
    for user in ("ann", "bob", "eve"):
        assert known.find(SHA_256, user) is None
        assert is_salt_text(known.stand_ins.make(SHA_256, user).salt)


def test_every_broker_of_a_cluster_has_the_same_secret_and_keeps_it() -> None:
    """Whichever made it; also after a start of all, and where two brokers make one together."""
    znodes = Znodes()
    first, second = Broker(znodes, 1), Broker(znodes, 2)
    first.load()
    second.load()
    assert first.shown("eve") == second.shown("eve")
    assert decode_secret(znodes.data(USERS)) == bytes([1]) * SECRET_BYTES
    again = Broker(znodes, 3)
    again.load()
    assert again.shown("eve") == first.shown("eve")


@pytest.mark.parametrize("data", [None, b""])
def test_a_secret_is_put_into_a_znode_that_is_there_without_data(data: bytes | None) -> None:
    """As every broker makes it, Apache's too."""
    znodes = Znodes()
    znodes.put(USERS, data)
    brokers = [Broker(znodes, number) for number in (1, 2)]
    for broker in brokers:
        broker.load()
    assert brokers[0].shown("eve") == brokers[1].shown("eve")


def test_a_broker_that_is_overtaken_while_it_makes_the_secret_takes_the_others() -> None:
    """Its write does not happen, because the znode has another version."""
    znodes = Znodes()
    znodes.put(USERS, None)
    slow = Broker(znodes, 1)
    steps = slow.repository.reload_users()
    answer = znodes.outcome(next(steps))
    fast = Broker(znodes, 2)
    fast.load()
    write = steps.send(answer)
    znodes.perform(resumed(steps, write))
    assert slow.shown("eve") == fast.shown("eve")


def resumed(steps, first):
    """The steps from the one that they wait for."""
    answer = yield first
    while True:
        try:
            answer = yield steps.send(answer)
        except StopIteration:
            return


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"version":2}', b'{"version":1}', b'{"version":1,"scram_salt_secret":7}']
)
def test_other_data_is_left_alone_and_reported_without_being_shown(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker uses a secret of its own then: no salt can be computed by others."""
    znodes = Znodes()
    znodes.put(USERS, data)
    broker = Broker(znodes, 1)
    with caplog.at_level(logging.ERROR):
        broker.load()
    assert znodes.data(USERS) == data
    (message,) = [record.getMessage() for record in caplog.records]
    assert re.match(r"The data of /config/users is no secret for salts", message)
    assert data.decode() not in message.partition("(")[0]
    assert broker.shown("eve") == Broker(Znodes(), 1).shown("eve")


def test_too_short_a_secret_is_refused() -> None:
    """It could be guessed."""
    assert decode_secret(encode_secret(bytes(SECRET_BYTES))) == bytes(SECRET_BYTES)
    with pytest.raises(ValueError, match="too short"):
        decode_secret(encode_secret(bytes(SECRET_BYTES - 1)))


@pytest.mark.parametrize(("number", "text"), [(0, b"0"), (35, b"z"), (36, b"10"), ((1 << 130) - 1, None)])
def test_a_salt_is_a_number_in_base_36(number: int, text: bytes | None) -> None:
    """Java's `BigInteger.toString(36)`."""
    made = salt_text(number)
    assert int(made, 36) == number
    assert text is None or made == text
    assert len(made) <= 26

"""Serializers, deserializers and partitioners by name and as objects."""

import sys
import types

import pytest

from barnabas.base.errors import ConfigError
from barnabas.client import BYTES, DOUBLE, INTEGER, JSON, LONG, STRING, Codec, SerializationError
from barnabas.client.codecs import decoder, encoder
from barnabas.client.producer.partitioners import chooser


class Tens:
    """A batch by hand: a list of lines as one message."""

    def encode(self, lines: list[str]) -> bytes:
        return "\n".join(lines).encode()

    def decode(self, data: bytes) -> list[str]:
        return data.decode().split("\n")


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("kafka.serializer.StringEncoder", "ä", b"\xc3\xa4"),
        ("kafka.serializer.DefaultEncoder", b"x", b"x"),
        ("org.apache.kafka.common.serialization.IntegerSerializer", 7, b"\0\0\0\x07"),
        ("org.apache.kafka.common.serialization.LongSerializer", -1, b"\xff" * 8),
        ("json", {"a": [1]}, b'{"a":[1]}'),
        (None, "text", b"text"),
        (None, None, None),
        ("bytes", bytearray(b"b"), b"b"),
    ],
)
def test_known_names_encode_as_javas_serializers_do(name: str | None, value: object, data: bytes | None) -> None:
    """Java's class names work without Java."""
    assert encoder(name)(value) == data


def test_known_names_decode_what_they_encode() -> None:
    """Decoders answer to Java's names too."""
    assert decoder("org.apache.kafka.common.serialization.StringDeserializer")(b"\xc3\xa4") == "ä"
    assert decoder("long")(b"\xff" * 8) == -1
    assert decoder("org.apache.kafka.common.serialization.ByteArrayDeserializer") is None


def test_an_own_encoder_makes_ten_records_one_message() -> None:
    """The class may be given by dotted path, as a class, as an object or as a function."""
    module = types.ModuleType("lab_codecs")
    module.Tens = Tens
    sys.modules["lab_codecs"] = module
    try:
        lines = [f"line {n}" for n in range(10)]
        for given in ("lab_codecs.Tens", Tens, Tens(), Tens().encode):
            assert decoder(Tens)(encoder(given)(lines)) == lines
    finally:
        del sys.modules["lab_codecs"]


@pytest.mark.parametrize(
    ("given", "message"),
    [("no.such.module.Encoder", "cannot import"), ("json.Nothing", "json has no Nothing"), ("nodots", "dotted path")],
)
def test_a_codec_that_cannot_be_loaded_is_named(given: str, message: str) -> None:
    """A typing error in a class path is reported at once, by its property's name."""
    with pytest.raises(ConfigError, match=f"serializer.class={given}: .*{message}"):
        encoder(given)


def test_a_value_without_an_encoder_is_refused_with_advice() -> None:
    """Numbers are not guessed into bytes; text and bytes are what they are, unless
    text is what was asked for."""
    with pytest.raises(TypeError, match=r"type int is neither text nor bytes .*set serializer\.class"):
        encoder(None)(42)
    for given in (b"bytes\xff", bytearray(b"bytes\xff"), memoryview(b"bytes\xff")):
        assert encoder(None)(given) == b"bytes\xff"
    assert encoder(None)("text \u20ac") == "text \u20ac".encode()
    for text_only in (STRING, "string"):
        with pytest.raises(SerializationError, match="give serializer=BYTES"):
            encoder(text_only)(b"bytes")


@pytest.mark.parametrize(
    ("codec", "value"),
    [(STRING, "ä"), (BYTES, b"\xff"), (INTEGER, -7), (LONG, 2**40), (DOUBLE, 0.5), (JSON, {"a": [1, None]})],
    ids=lambda each: str(each),
)
def test_each_codec_gives_back_what_it_took(codec: Codec, value: object) -> None:
    """What send takes, Record.value gives back."""
    assert (decoder(codec) or bytes)(encoder(codec)(value)) == value


def test_a_value_that_a_codec_does_not_fit_is_a_serialization_error() -> None:
    """What struct or json raises is the cause, and the property is named."""
    with pytest.raises(SerializationError, match=r"serializer\.class: 'seven' cannot be serialized"):
        encoder(INTEGER)("seven")


def test_round_robin_takes_one_partition_after_the_other_in_each_topic() -> None:
    """Java's RoundRobinPartitioner, whatever the keys."""
    chosen = chooser("round_robin", lambda _: 3)
    assert [chosen.choose("t", key) for key in ("a", "a", None, "a")] == [0, 1, 2, 0]
    assert chosen.choose("other", "a") == 0


def test_the_old_default_hashes_keys_and_goes_round_without() -> None:
    """kafka.producer.DefaultPartitioner: keys are left to librdkafka's murmur2."""
    chosen = chooser("keyed_round_robin", lambda _: 2)
    assert [chosen.choose("t", key) for key in (None, b"k", None, None)] == [0, -1, 1, 0]


def test_an_own_partitioner_sees_the_key_and_the_number_of_partitions() -> None:
    """A function, or an object with a method partition."""
    chosen = chooser(lambda key, count: int(key) % count, lambda _: 4)
    assert chosen.choose("t", "7") == 3
    with pytest.raises(ConfigError, match="partitions 0 to 3"):
        chooser(lambda key, count: count, lambda _: 4).choose("t", "k")

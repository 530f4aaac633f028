"""Properties files and login modules that are written here, as Apache Kafka's own
code reads them."""

import base64
from pathlib import Path
from random import Random

import pytest

from barnabas.base.settings import properties_text
from barnabas.cli.connection.properties import read_properties_file
from barnabas.security.jaas import LoginModule, jaas_text
from support.needs import needs_reference
from support.reference import apache_tool

PROBE = Path(__file__).parents[1] / "support" / "PropertiesProbe.java"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
CHARACTERS = " \t\n\r\f\\:=#!\"';{},/@$-.09aZ\0\x7f\x85\u00e9\u00fc\u20ac\u2028\U0001f600"


def texts(random: Random) -> str:
    """A text that is hard to quote."""
    return "".join(random.choice(CHARACTERS) for _ in range(random.randrange(12)))


@needs_reference
@pytest.mark.interop
@pytest.mark.java
def test_apache_kafka_reads_what_is_written_here(tmp_path: Path) -> None:
    """Names, values, options and passwords of any characters; of a file in UTF-8 it
    makes what we make of it."""
    random = Random(22)
    expected = []
    for number in range(150):
        properties = {texts(random): texts(random) for _ in range(4)}
        options = {texts(random) or "username": texts(random) for _ in range(3)}
        jaas = jaas_text(LoginModule(MODULE, "required", options))
        path = tmp_path / f"{number:03}.properties"
        path.write_text(properties_text({**properties, "sasl.jaas.config": jaas}))
        expected.append(properties | {f"jaas {name}": value for name, value in options.items()})
    raw = tmp_path / "raw.properties"
    raw.write_bytes("broker.rack = Z\u00fcrich \n\u00fc:\u20ac\nrest=a\\\n  \u00fc\r\nend=x\\".encode())
    expected.append(read_properties_file(raw, lambda _: None))
    done = apache_tool(str(PROBE), *sorted(tmp_path.glob("*.properties")))
    found = [dict(map(pair, line.split()[1:])) for line in done.stdout.splitlines() if line.startswith("read")]
    assert len(found) == len(expected), done.stderr
    for ours, theirs in zip(expected, found, strict=True):
        assert theirs == ours


def pair(word: str) -> tuple[str, str]:
    """A name and a value."""
    name, _, value = word.partition(":")
    return base64.b64decode(name).decode(), base64.b64decode(value).decode()

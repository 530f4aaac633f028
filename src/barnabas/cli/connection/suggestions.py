"""What was probably meant: topics of the cluster, and names of configurations, for
commands that were refused one."""

import re
from collections.abc import Iterable, Mapping

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.cli.output.colours import print_warning
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["key_hint", "refuse_hidden", "topic_hint", "warn_of_unknown", "with_suggestion"]

_TOPIC_NAME = re.compile(r"[\w.-]+", re.ASCII)
_UNKNOWN_KEY = re.compile(r"Unknown \w+ config name: (\S+)")


def topic_hint(connection: AdminConnection, topic: str) -> str:
    """``; did you mean TOPIC?`` for the name of a topic that is not there."""
    try:
        return did_you_mean(topic, [each.name or "" for each in connection.metadata().topics])
    except BarnabasError:
        return ""


def refuse_hidden(connection: AdminConnection, text: str | None) -> None:
    """Raise `AuthorizationError` for a topic that no list has because it may not be described.

    Brokers say so where it is named. Does nothing for a regular expression."""
    if text is None or not _TOPIC_NAME.fullmatch(text):
        return
    from barnabas.client.admin.topics import describe_topics
    from barnabas.client.errors import AuthorizationError, ClientError

    try:
        describe_topics(connection, [text])
    except AuthorizationError:
        raise
    except ClientError:
        return


def key_hint(message: str) -> str:
    """``; did you mean NAME?`` for a broker's refusal of the name of a topic's configuration."""
    unknown = _UNKNOWN_KEY.search(message)
    if unknown is None:
        return ""
    from barnabas.log.settings import TOPIC_SETTINGS

    return did_you_mean(unknown[1], [setting.name for setting in TOPIC_SETTINGS])


def with_suggestion(error: KafkaError, connection: AdminConnection, topic: str | None = None) -> BarnabasError:
    """A broker's refusal as a command reports it, with what was probably meant."""
    hint = key_hint(error.message)
    if not hint and topic and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        hint = topic_hint(connection, topic)
        if topic not in error.message:
            return BarnabasError(f"topic {topic} does not exist{hint}")
    return BarnabasError(f"{error.message} ({error.code.name}){hint}")


def warn_of_unknown(given: Mapping[str, object], known: Iterable[str], what: str) -> None:
    """Say which properties have no effect, on standard error.

    Kafka's tools take them in silence."""
    names = list(known)
    for name in given:
        if name not in names:
            print_warning(f"{name} is not a property of {what}{did_you_mean(name, names)}")

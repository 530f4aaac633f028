"""Rules on clients that are too old.

In Kafka: KIP-896, which removed versions of the protocol that clients before Kafka 2.1 speak;
KIP-98, with which records got their present format.
"""

from collections.abc import Callable, Iterator

from barnabas.doctor.evidence.requests import UnservedRequest, UnservedRequestsPart
from barnabas.doctor.finding import Danger, Finding
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import first_lines, some

__all__ = ["clients_of_old_message_formats", "clients_of_old_protocols"]

_FIRST_OF_PRESENT_FORMAT = {"Produce": 3, "Fetch": 4}
"""From these versions on records have the format of Kafka 0.11."""
_MOST_LINES = 6


@rule("old-protocols", Danger.UNAVAILABLE, "clients send requests in versions that brokers do not serve")
def clients_of_old_protocols(requests: UnservedRequestsPart) -> Iterator[Finding]:
    """Their connections are closed."""
    lines, found = _found(requests, lambda each: not _has_old_format(each))
    if found:
        yield Finding(
            found,
            f"Clients send requests in versions that the brokers do not serve, and are disconnected: {some(found)}.",
            lines,
            (
                "upgrade these clients: those of Kafka 2.1 or later work (KIP-896); the broker's log has their addresses",
            ),
        )


@rule("old-message-formats", Danger.UNAVAILABLE, "clients use the record formats from before Kafka 0.11")
def clients_of_old_message_formats(requests: UnservedRequestsPart) -> Iterator[Finding]:
    """Brokers do not have these formats any more."""
    lines, found = _found(requests, _has_old_format)
    if found:
        yield Finding(
            found,
            f"Clients use the record formats from before Kafka 0.11, and are disconnected: {some(found)}.",
            lines,
            ("upgrade these clients: those of Kafka 2.1 or later work; the broker's log has their addresses",),
        )


def _found(
    requests: UnservedRequestsPart, chooses: Callable[[UnservedRequest], bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of evidence, and the requests with their versions."""
    lines: list[str] = []
    names: dict[str, None] = {}
    for broker_id, counts in sorted(requests.counts.items()):
        for each, count in sorted(counts.items(), key=lambda item: -item[1]):
            if count and chooses(each):
                names[f"{each.request} in version {each.version}"] = None
                lines.append(
                    f"broker {broker_id}: {count} {each.request} requests in version {each.version} were refused"
                )
    return first_lines(lines, _MOST_LINES), tuple(names)


def _has_old_format(request: UnservedRequest) -> bool:
    return request.version < _FIRST_OF_PRESENT_FORMAT.get(request.request, 0)

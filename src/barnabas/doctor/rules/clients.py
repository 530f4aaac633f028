"""Rules on clients that are too old.

In Kafka: KIP-896, which removed versions of the protocol from Kafka 4.0; KIP-511, by which
clients name their software.
"""

from collections.abc import Iterable, Iterator

from barnabas.doctor.evidence.requests import DeprecatedRequest, DeprecatedRequestsPart
from barnabas.doctor.finding import Danger, Finding
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.words import some

__all__ = ["clients_of_old_message_formats", "clients_of_old_protocols"]

_FIRST_OF_FORMAT_2 = {"Produce": 3, "Fetch": 4, "FetchConsumer": 4}
"""From these versions on records have the format of Kafka 0.11 (KIP-98)."""
_MOST_LINES = 6


@rule("old-protocols", Danger.COMING, "clients send requests in versions that Kafka 4.0 refuses")
def clients_of_old_protocols(requests: DeprecatedRequestsPart) -> Iterator[Finding]:
    """They work until the brokers are upgraded."""
    found = _by_software(requests, is_old_format=False)
    if found:
        yield Finding(
            tuple(found),
            f"Clients send requests in versions that Kafka 4.0 refuses (KIP-896): {some(found)}.",
            _lines(found),
            ("upgrade these clients before the brokers: any of Kafka 2.1 or later will do",),
        )


@rule("old-message-formats", Danger.COMING, "clients write or read the record formats from before Kafka 0.11")
def clients_of_old_message_formats(requests: DeprecatedRequestsPart) -> Iterator[Finding]:
    """Their records have no headers, no transactions, and are converted."""
    found = _by_software(requests, is_old_format=True)
    if found:
        yield Finding(
            tuple(found),
            f"Clients use the record formats from before Kafka 0.11, which are converted: {some(found)}.",
            _lines(found),
            ("upgrade these clients: any of Kafka 0.11 or later writes and reads the present format",),
        )


def _by_software(requests: DeprecatedRequestsPart, *, is_old_format: bool) -> dict[str, list[str]]:
    """The lines of evidence of each client's software."""
    found: dict[str, list[str]] = {}
    for broker_id, counts in sorted(requests.counts.items()):
        for each, count in sorted(counts.items(), key=lambda item: -item[1]):
            if count and _has_old_format(each) == is_old_format:
                software = f"{each.software} {each.software_version}".strip()
                line = f"broker {broker_id}: {count} {each.request} requests in version {each.version} by {software}"
                found.setdefault(software, []).append(line)
    return found


def _has_old_format(request: DeprecatedRequest) -> bool:
    return request.version < _FIRST_OF_FORMAT_2.get(request.request, 0)


def _lines(found: "dict[str, list[str]]") -> tuple[str, ...]:
    lines: Iterable[str] = (line for each in found.values() for line in each)
    listed = list(lines)
    more = len(listed) - _MOST_LINES
    return (*listed[:_MOST_LINES], *([f"and {more} more"] if more > 0 else ()))

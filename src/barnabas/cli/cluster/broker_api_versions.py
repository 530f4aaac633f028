"""``barnabas broker-api-versions``: which APIs each broker offers, with the options of Kafka's
BrokerApiVersionsCommand.

Usable is the highest version that a broker and this program both know. An API that clients may use
and a broker does not offer is UNSUPPORTED.
"""

from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.cli.connection.connect import connect
from barnabas.cli.connection.incomplete import Gaps
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import print
from barnabas.client.cluster.admin_connection import AdminConnection, Broker
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import refusal
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

__all__ = ["main"]

Offered = dict[int, tuple[int, int]]


def main(argv: list[str]) -> int:
    """Print every broker's table; a broker that cannot be asked is a line with its error."""
    parser = ToolParser("broker-api-versions", "Show the APIs and versions that each broker offers.")
    add_connection_options(parser)
    add_output_option(parser)
    given = parser.parse_args(argv)
    parser.require(given, "bootstrap-server")
    with connect(given, "barnabas-broker-api-versions") as connection:
        brokers = connection.describe_cluster().brokers
        answers = ask_each(connection, [broker.id for broker in brokers], _ask, is_last=True)
        gaps = Gaps(connection)
    found = [(broker, answers[broker.id]) for broker in brokers]
    if given.output == "json":
        print_json([_as_json(broker, answer) for broker, answer in found])
        return gaps.report()
    for broker, answer in found:
        name = f"{broker.host}:{broker.port} (id: {broker.id} rack: {broker.rack or 'null'})"
        if isinstance(answer, BarnabasError):
            print(f"{name} -> ERROR: {answer}")
        else:
            print(f"{name} -> (", end="\n\t")
            print(*_lines(answer), sep=",\n\t", end="\n)\n")
    return gaps.report()


def _ask(connection: AdminConnection, broker_id: int) -> Offered:
    request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="1")
    response = connection.send(request, ApiVersionsResponse, broker_id)
    if response.error_code:
        raise refusal(response.error_code)
    return {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}


def _known(key: int) -> bool:
    return key in ApiKey._value2member_map_


def _missing(offered: Offered) -> list[int]:
    return [int(key) for key in ApiKey if key not in offered]


def _lines(offered: Offered) -> list[str]:
    return [_line(key, offered.get(key)) for key in sorted([*offered, *_missing(offered)])]


def _line(key: int, versions: tuple[int, int] | None) -> str:
    if versions is None:
        return f"{ApiKey(key).title}({key}): UNSUPPORTED"
    first, last = versions
    span = str(first) if first == last else f"{first} to {last}"
    if not _known(key):
        return f"UNKNOWN({key}): {span}"
    version = _usable(key, first, last)
    if version is not None:
        described = f"usable: {version}"
    else:
        described = f"unusable: node too {'new' if first > api(key).versions.last else 'old'}"
    return f"{ApiKey(key).title}({key}): {span} [{described}]"


def _as_json(broker: Broker, answer: Offered | BarnabasError) -> dict[str, Any]:
    described: dict[str, Any] = {"id": broker.id, "host": broker.host, "port": broker.port, "rack": broker.rack}
    if isinstance(answer, BarnabasError):
        return {**described, "error": str(answer)}
    described["apis"] = [
        {
            "key": key,
            "name": ApiKey(key).title if _known(key) else None,
            "min_version": first,
            "max_version": last,
            "usable_version": _usable(key, first, last),
        }
        for key, (first, last) in sorted(answer.items())
    ]
    described["unsupported"] = [ApiKey(key).title for key in _missing(answer)]
    return described


def _usable(key: int, first: int, last: int) -> int | None:
    if not _known(key):
        return None
    version = min(api(key).versions.last, last)
    return version if version >= max(first, api(key).versions.first) else None

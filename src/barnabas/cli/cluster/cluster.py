"""``barnabas cluster``: the cluster's id and endpoints, with the options of Kafka's ClusterTool."""

import sys
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError
from barnabas.cli.connection.connect import connect
from barnabas.cli.options.tool_parser import BROKERS_HELP, ToolParser, add_connect_timeout, add_output_option
from barnabas.cli.output.tables import print_json
from barnabas.cli.output.terminal import escaped_for, print
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.wire.kafka.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from barnabas.client.cluster.admin_connection import AdminConnection

__all__ = ["main"]

_FENCED_BROKERS_FROM = 2  # the first version of DescribeCluster that can list fenced brokers
_COLUMN = 10


def main(argv: list[str]) -> int:
    """Do ``cluster-id``, ``list-endpoints`` or ``unregister``."""
    parser = ToolParser("cluster", "Show the cluster's id and its brokers' addresses.")
    add = parser.add_argument
    add("action", choices=("cluster-id", "list-endpoints", "unregister"), help="what to do")
    add("-b", "--bootstrap-server", metavar="HOST:PORT[,...]", help=BROKERS_HELP)
    add("-C", "--bootstrap-controller", metavar="HOST:PORT", help="not supported: clusters here have no such servers")
    add("-c", "--config", dest="command_config", metavar="FILE", help="a .properties file for the connection")
    add("-i", "--id", type=int, metavar="ID", help="the broker to unregister")
    add("--include-fenced-brokers", action="store_true", help="with list-endpoints: brokers out of service too")
    add_connect_timeout(parser)
    add_output_option(parser)
    given = parser.parse_args(argv)
    if given.bootstrap_controller:
        parser.error("--bootstrap-controller names a KRaft controller: name a broker, --bootstrap-server HOST:PORT")
    parser.require(given, "bootstrap-server")
    if given.action == "unregister":
        parser.require(given, "id")
    elif given.id is not None:
        parser.error("--id belongs to unregister")
    if given.include_fenced_brokers and given.action != "list-endpoints":
        parser.error("--include-fenced-brokers belongs to list-endpoints")
    as_json = given.output == "json"
    with connect(given, "barnabas-cluster") as connection:
        if given.action == "cluster-id":
            _cluster_id(connection, as_json=as_json)
        elif given.action == "list-endpoints":
            _list_endpoints(connection, include_fenced=given.include_fenced_brokers, as_json=as_json)
        else:
            _unregister(connection, given.id)
    return 0


def _cluster_id(connection: "AdminConnection", *, as_json: bool) -> None:
    cluster_id = connection.describe_cluster().cluster_id
    if as_json:
        print_json({"cluster_id": cluster_id})
    elif cluster_id is None:
        print("No cluster ID found. The Kafka version is probably too old.")
    else:
        print(f"Cluster ID: {cluster_id}")


def _list_endpoints(connection: "AdminConnection", *, include_fenced: bool, as_json: bool) -> None:
    if include_fenced and connection.negotiated(DescribeClusterRequest) < _FENCED_BROKERS_FROM:
        raise BarnabasError("the brokers cannot list fenced brokers: omit --include-fenced-brokers")
    response = connection.send(DescribeClusterRequest(include_fenced_brokers=include_fenced), DescribeClusterResponse)
    if response.error_code:
        raise KafkaError(response.error_code, response.error_message)
    brokers = sorted(response.brokers, key=lambda broker: broker.broker_id)
    if as_json:
        print_json([_as_json(broker) for broker in brokers])
        return
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"), *map(_row, brokers)]
    host = max(len(row[1]) for row in rows)
    rack = max(_COLUMN, *(len(row[3]) for row in rows))
    for row in rows:
        print(f"{row[0]:<10} {row[1]:<{host}} {row[2]:<10} {row[3]:<{rack}} {row[4]:<10} {row[5]:<15}")


def _row(broker: DescribeClusterBroker) -> tuple[str, ...]:
    state = "fenced" if broker.is_fenced else "unfenced"
    host, rack = (escaped_for(text, sys.stdout) for text in (broker.host, broker.rack or "null"))
    return str(broker.broker_id), host, str(broker.port), rack, state, "broker"


def _as_json(broker: DescribeClusterBroker) -> dict[str, object]:
    return {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "fenced": broker.is_fenced,
    }


def _unregister(connection: "AdminConnection", broker_id: int) -> None:
    """Only KRaft clusters keep registrations of brokers that are gone; with ZooKeeper a
    stopped broker's ends itself."""
    try:
        response = connection.send(UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise BarnabasError(
            "The target cluster does not support the broker unregistration API. A broker of this cluster is "
            "registered as long as it runs: move its replicas away with barnabas reassign-partitions, then stop it."
        ) from None
    if response.error_code:
        raise KafkaError(response.error_code, response.error_message)
    print(f"Broker {broker_id} is no longer registered.")

"""DescribeCluster (API key 60)."""

from barnabas.wire.kafka.schema import Message, Struct, array_of, boolean, int8, int16, int32, string

__all__ = ["DescribeClusterBroker", "DescribeClusterRequest", "DescribeClusterResponse"]


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    """API key 60, versions 0 to 2."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Struct):
    """``brokers[]`` of `DescribeClusterResponse`."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+", ignorable=True)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    """API key 60, versions 0 to 2."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array_of(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)

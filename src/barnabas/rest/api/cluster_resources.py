"""The cluster, its brokers, and its access control lists.

In Confluent's proxy: ClustersResource, BrokersResource and AclsResource.
"""

from collections.abc import Mapping
from typing import Any

from barnabas.client.admin.acls import Acl, AclFilter, create_acls, delete_acls, describe_acls
from barnabas.rest.api.calls import (
    ApiAnswer,
    ApiCall,
    ApiRoute,
    needed_object,
    number_in_path,
    text_field,
)
from barnabas.rest.errors import RestCode, RestError

__all__ = ["CLUSTER_ROUTES", "clusters_answer"]

_CLUSTER_NAME = "kafka-cluster"
_ACL_FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")


def clusters_answer(call: ApiCall) -> ApiAnswer:
    """The list of clusters."""
    return ApiAnswer(call.links.clusters(call.connection.describe_cluster(fresh=True)))


def _cluster(call: ApiCall) -> ApiAnswer:
    return ApiAnswer(call.links.cluster(call.connection.describe_cluster(fresh=True)))


def _brokers(call: ApiCall) -> ApiAnswer:
    found = map(call.links.broker, call.connection.describe_cluster(fresh=True).brokers)
    return ApiAnswer(call.links.list_of("Broker", ("brokers",), found))


def _broker(call: ApiCall) -> ApiAnswer:
    number = number_in_path(call, "broker_id")
    for broker in call.connection.describe_cluster(fresh=True).brokers:
        if broker.id == number:
            return ApiAnswer(call.links.broker(broker))
    raise RestError(RestCode.NOT_FOUND, "HTTP 404 Not Found")


# Access control lists


def _filter(query: Mapping[str, str], needed: tuple[str, ...] = ()) -> AclFilter:
    """The entries that a query means. Raises `RestError` where it lacks what is ``needed``."""
    if unknown := query.keys() - set(_ACL_FIELDS):
        raise RestError(RestCode.BAD_REQUEST, f"{min(unknown)[:50]} is no field of an ACL")
    for name in needed:
        if query.get(name, "UNKNOWN").upper() == "UNKNOWN":
            raise RestError(RestCode.BAD_REQUEST, f"{name} cannot be unspecified or UNKNOWN")
    return AclFilter(
        query.get("resource_type", "ANY"),
        query.get("resource_name") or None,
        query.get("principal") or None,
        query.get("operation", "ANY"),
        query.get("permission", "ANY"),
        query.get("host") or None,
        query.get("pattern_type", "ANY"),
    )


def _find_acls(call: ApiCall) -> ApiAnswer:
    found = map(call.links.acl, describe_acls(call.connection, _filter(call.query)))
    answer = call.links.list_of("Acl", ("acls",), found)
    answer["metadata"]["self"] = call.links.acl_url(call.query)
    return ApiAnswer(answer)


def _create_acl(call: ApiCall) -> ApiAnswer:
    acl = _acl(needed_object(call.body))
    create_acls(call.connection, [acl])
    return ApiAnswer(status=201, headers={"Location": call.links.acl(acl)["metadata"]["self"]})


def _create_acl_batch(call: ApiCall) -> ApiAnswer:
    entries = needed_object(call.body).get("data")
    if not isinstance(entries, list) or not entries:
        raise RestError(RestCode.BAD_REQUEST, "data: a list of ACLs is expected")
    create_acls(call.connection, [_acl(entry) for entry in entries])
    return ApiAnswer(status=201)


def _acl(given: Any) -> Acl:
    values = {name: text_field(given, name) for name in _ACL_FIELDS if name != "resource_name"}
    for name in ("resource_type", "pattern_type", "operation", "permission"):
        if values[name].upper() in ("ANY", "UNKNOWN", "MATCH"):
            raise RestError(RestCode.BAD_REQUEST, f"{name} cannot be {values[name]}")
    is_cluster = values["resource_type"].upper() == "CLUSTER"
    name = given.get("resource_name", _CLUSTER_NAME if is_cluster else None)
    if is_cluster and name != _CLUSTER_NAME:
        raise RestError(RestCode.KAFKA_BAD_REQUEST, f"The only valid name for the CLUSTER resource is {_CLUSTER_NAME}")
    if not isinstance(name, str) or not name:
        raise RestError(RestCode.BAD_REQUEST, "resource_name: a text is expected")
    return Acl(
        values["resource_type"].upper(),
        name,
        values["principal"],
        values["operation"].upper(),
        values["permission"].upper(),
        values["host"],
        values["pattern_type"].upper(),
    )


def _delete_acls(call: ApiCall) -> ApiAnswer:
    wanted = _filter(call.query, ("resource_type", "pattern_type", "operation", "permission"))
    return ApiAnswer({"data": [call.links.acl(each) for each in delete_acls(call.connection, wanted)]})


CLUSTER_ROUTES: list[ApiRoute] = [
    ("GET", "", _cluster),
    ("GET", "/brokers", _brokers),
    ("GET", "/brokers/{broker_id}", _broker),
    ("GET", "/acls", _find_acls),
    ("POST", "/acls", _create_acl),
    ("POST", "/acls:batch", _create_acl_batch),
    ("DELETE", "/acls", _delete_acls),
]
"""In the order in which they are looked for."""

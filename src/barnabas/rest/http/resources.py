"""Requests about the cluster's state: each is answered by a function of `barnabas.rest.api`, in a
thread.

In Confluent's proxy: `V2ResourcesFeature` and `V3ResourcesFeature`.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.rest.api.calls import ApiAnswer, ApiCall, ApiRoute
from barnabas.rest.api.cluster_resources import CLUSTER_ROUTES, clusters_answer
from barnabas.rest.api.config_resources import CONFIG_ROUTES
from barnabas.rest.api.group_resources import GROUP_ROUTES
from barnabas.rest.api.topic_resources import TOPIC_ROUTES
from barnabas.rest.api.version_2 import VERSION_2_ROUTES
from barnabas.rest.core.links import ResourceLinks
from barnabas.rest.errors import RestCode, RestError
from barnabas.rest.http.exchange import (
    VERSION_2,
    accepted_format,
    backend_of,
    base_url,
    json_answer,
    read_json_body,
    unsupported_type,
)

__all__ = ["CLUSTER_PATH", "add_version_2_resources", "add_version_3_resources"]

CLUSTER_PATH = "/v3/clusters/{cluster_id}"
_WITH_BODY = ("POST", "PUT", "PATCH")


def add_version_3_resources(router: web.UrlDispatcher) -> None:
    """The resources of version 3 but for records."""
    router.add_route("GET", "/v3/clusters", _of_version_3(("GET", "", clusters_answer)))
    for route in (*CLUSTER_ROUTES, *CONFIG_ROUTES, *TOPIC_ROUTES, *GROUP_ROUTES):
        router.add_route(route[0], CLUSTER_PATH + route[1], _of_version_3(route))


def add_version_2_resources(router: web.UrlDispatcher) -> None:
    """The resources of version 2 but for records and consumers."""
    for route in VERSION_2_ROUTES:
        router.add_route(route[0], route[1], _of_version_2(route))


Handled = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _of_version_3(route: ApiRoute) -> Handled:
    method, _, function = route

    async def handle(request: web.Request) -> web.StreamResponse:
        body = None
        if method in _WITH_BODY:
            if request.can_read_body and request.content_type != "application/json":
                raise unsupported_type()
            body = await read_json_body(request)
        base, path, query = base_url(request), dict(request.match_info), dict(request.query)

        def ask(connection: AdminConnection) -> ApiAnswer:
            cluster_id = connection.describe_cluster().cluster_id or ""
            if path.get("cluster_id", cluster_id) != cluster_id:
                raise RestError(RestCode.NOT_FOUND, f"Cluster {path['cluster_id'][:100]} cannot be found.")
            return function(ApiCall(connection, ResourceLinks(base, cluster_id), path, query, body))

        return _answer(await backend_of(request).admin.run(ask))

    return handle


def _answer(found: ApiAnswer) -> web.Response:
    if found.document is None:
        return web.Response(status=found.status, headers=found.headers)
    return json_answer(found.document, found.status, headers=dict(found.headers))


def _of_version_2(route: ApiRoute) -> Handled:
    function = route[2]

    async def handle(request: web.Request) -> web.StreamResponse:
        accepted_format(request)
        base, path = base_url(request), dict(request.match_info)

        def ask(connection: AdminConnection) -> ApiAnswer:
            return function(ApiCall(connection, ResourceLinks(base, ""), path, {}))

        found = await backend_of(request).admin.run(ask)
        return json_answer(found.document, content_type=VERSION_2)

    return handle

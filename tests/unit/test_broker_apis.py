"""The table of APIs: what is registered can be dispatched, advertised and answered
with an error."""

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.broker.apis import MODULES, ApiHandler, load_handlers
from barnabas.wire.kafka.api import ApiKey, api

HANDLERS = load_handlers()


def test_modules_are_listed_once_and_in_order() -> None:
    """So that two people who add a module do not add it twice."""
    assert list(MODULES) == sorted(set(MODULES))


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.key.name)
def test_a_registered_api_is_within_what_can_be_decoded(handler: ApiHandler) -> None:
    """No version is advertised that the codec does not know."""
    versions = api(handler.key).versions
    assert versions.first <= handler.min_version <= handler.max_version <= versions.last


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.key.name)
def test_every_api_has_a_way_to_answer_an_error(handler: ApiHandler) -> None:
    """An exception in a handler must reach the client as the API's own error."""
    names = {field.name for field in api(handler.key).response.FIELDS}
    assert handler.fail is not None or "error_code" in names


def test_apis_that_users_read_are_not_there_are_not_served() -> None:
    """Delegation tokens, quotas of clients, and requests that a broker forwards."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "not-supported.md"
    (row,) = (line for line in page.read_text().splitlines() if line.startswith("| Delegation tokens"))
    listed = {key for key in ApiKey if "".join(map(str.capitalize, key.name.split("_"))) in row}
    assert len(listed) == 7
    assert listed.isdisjoint(HANDLERS)


def test_every_api_can_ask_for_rights() -> None:
    """Except for those that come before a client has a name. Requests of brokers are asked for
    CLUSTER_ACTION in one place."""
    open_to_all = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    asking = {key for key, each in HANDLERS.items() if each.inter_broker or _takes_auth_helper(each)}
    assert HANDLERS.keys() - asking == open_to_all


def _takes_auth_helper(handler: ApiHandler) -> bool:
    taken: list[str] = []

    class Services:
        """Notes what is taken."""

        def __getattr__(self, name: str) -> "Services":
            taken.append(name)
            return self

    handler.parts(Services())
    return "auth_helper" in taken


def test_a_server_has_imported_all_it_needs_before_its_loop_runs() -> None:
    """Else the first broker of a process holds its event loop for 40 ms while it starts."""
    program = (
        "import sys, barnabas.broker.server; from barnabas.broker.apis import MODULES; "
        "print([name for name in MODULES if 'barnabas.broker.apis.' + name not in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

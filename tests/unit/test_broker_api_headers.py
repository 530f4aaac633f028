"""The headers of API modules, which the reference pages are written from."""

import re
import sys
from pathlib import Path

import pytest

from barnabas.broker.apis import MODULES
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

sys.path.append(str(Path(__file__).parents[2] / "docs"))
from api_headers import read_header  # it stands beside the generator that uses it


@pytest.mark.parametrize("name", MODULES)
def test_an_api_module_opens_with_its_key_its_versions_and_its_errors(name: str) -> None:
    """The docstring says what the registration at the module's end does."""
    header = read_header(name)
    api = header.api
    assert re.sub(r"(?<!^)(?=[A-Z])", "_", header.name).upper() == ApiKey(header.key).name
    assert (header.key, header.min_version, header.max_version) == (int(api.key), api.min_version, api.max_version)
    assert header.description
    assert "- 1" not in header.description, "a list of versions of another form"


@pytest.mark.parametrize("name", MODULES)
def test_what_versions_add_is_listed_in_their_order(name: str) -> None:
    """Each version that is named is one that is served."""
    header = read_header(name)
    versions = list(header.additions)
    assert versions == sorted(versions)
    assert all(header.min_version <= version <= header.max_version for version in versions)


@pytest.mark.parametrize("name", MODULES)
def test_the_errors_of_a_header_are_kafkas(name: str) -> None:
    """The codes exist, by these names."""
    codes = re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", read_header(name).errors)
    assert codes
    assert set(codes) <= {code.name for code in ErrorCode}


def test_a_header_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks above can fail."""
    from barnabas.broker.apis import heartbeat

    monkeypatch.setattr(heartbeat, "__doc__", "Heartbeat (API key 12): a member is alive.")
    with pytest.raises(ValueError, match="heartbeat: the first line"):
        read_header("heartbeat")
    monkeypatch.setattr(heartbeat, "__doc__", "Heartbeat (key 12), versions 0 to 4.\n\nA member is alive.")
    with pytest.raises(ValueError, match="heartbeat: the last paragraph"):
        read_header("heartbeat")

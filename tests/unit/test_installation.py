"""Hints that name an install command name one that works where Barnabas came from."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.installation import InstallOrigin, install_command, install_words, origin_of, packages_of

ROOT = Path(__file__).parents[2]
PIP = ["pip", "install"]
GIT = {"vcs": "git", "commit_id": "abc123", "requested_revision": "main"}
TEXTS = [
    ROOT / "README.md",
    *(
        path
        for folder in ("src", "docs", "examples", "demo", "bench")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md", ".ipynb", ".toml")
    ),
]


@pytest.mark.parametrize(
    ("record", "command"),
    [
        ({"url": "file:///home/me/barnabas", "dir_info": {}}, "pip install '/home/me/barnabas[pipelines]'"),
        (
            {"url": "file:///home/me/my%20clone", "dir_info": {"editable": False}},
            "pip install '/home/me/my clone[pipelines]'",
        ),
        (
            {"url": "file:///home/me/barnabas", "dir_info": {"editable": True}},
            "pip install -e '/home/me/barnabas[pipelines]'",
        ),
        (
            {"url": "file:///tmp/barnabas-0.1-py3-none-any.whl", "archive_info": {"hash": "sha256=00"}},
            "pip install '/tmp/barnabas-0.1-py3-none-any.whl[pipelines]'",
        ),
        ({"url": "file:///tmp/a%3Bb", "dir_info": {}}, "pip install 'barnabas[pipelines] @ file:///tmp/a%3Bb'"),
        (
            {"url": "https://example.org/barnabas.tar.gz", "archive_info": {}},
            "pip install 'barnabas[pipelines] @ https://example.org/barnabas.tar.gz'",
        ),
        (
            {"url": "https://example.org/barnabas", "vcs_info": GIT},
            "pip install 'barnabas[pipelines] @ git+https://example.org/barnabas@abc123'",
        ),
        (
            {"url": "file:///srv/all.git", "vcs_info": GIT, "subdirectory": "py/barnabas"},
            "pip install 'barnabas[pipelines] @ git+file:///srv/all.git@abc123#subdirectory=py/barnabas'",
        ),
    ],
)
def test_a_recorded_origin_is_named_again_with_the_extra(record: dict[str, Any], command: str) -> None:
    """A folder, an editable one, a wheel, an archive on the web, a repository."""
    assert install_words(origin_of(record), ["pipelines"], PIP) == command


def test_without_a_recorded_origin_the_index_is_asked() -> None:
    """pip and uv record none for a package from an index."""
    assert install_words(InstallOrigin(), ["pipelines", "outputs"], PIP) == "pip install 'barnabas[pipelines,outputs]'"


@given(st.text(st.characters(exclude_characters="\0;", exclude_categories=["Cs"]), min_size=1))
def test_any_path_comes_out_of_the_shell_as_it_is(name: str) -> None:
    """Blanks, quotes and dollar signs in a clone's path change nothing."""
    origin = origin_of({"url": Path("/", name).as_uri(), "dir_info": {}})
    assert shlex.split(install_words(origin, ["keyring"], PIP)) == [*PIP, f"{Path('/', name)}[keyring]"]


def test_an_origin_that_is_gone_leaves_the_packages_themselves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The extra's requirements, from the metadata of the installed package."""
    info = tmp_path / "barnabas-0.1.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", "Name: barnabas", "Version: 0.1", "Requires-Dist: numpy>=1.26"]
    lines += [f"Requires-Dist: {each}" for each in ("deltalake>=1.6; extra == 'outputs'", "rich; extra == 'demo'")]
    (info / "METADATA").write_text("\n".join(lines))
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{tmp_path}/clone", "dir_info": {}}))
    monkeypatch.syspath_prepend(tmp_path)
    assert shlex.split(install_command("outputs"))[-2:] == ["install", "deltalake>=1.6"]
    (tmp_path / "clone").mkdir()
    assert shlex.split(install_command("outputs"))[-2:] == ["install", f"{tmp_path}/clone[outputs]"]


def test_every_extra_has_its_packages_in_the_metadata() -> None:
    """As the build writes them: pyproject.toml names the same."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    requirements = metadata.requires("barnabas") or []
    for extra in ("keyring", "keystores", "outputs", "pipelines"):
        names = {re.split(r"[\[<>=]", each)[0] for each in packages_of(requirements, [extra])}
        assert names == {re.split(r"[\[<>=]", each)[0] for each in extras[extra]}


@pytest.mark.parametrize("kind", ["folder", "wheel", "index"])
def test_pip_takes_the_command_for_what_it_installed(kind: str, tmp_path: Path) -> None:
    """A real installation into a folder of its own, from a clone whose path has a blank, from a
    wheel, and from an index."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    quick = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    clone = tmp_path / "a clone"
    clone.symlink_to(ROOT)
    what = [str(clone)]
    if kind != "folder":
        subprocess.run([*pip, "wheel", *quick, "-w", tmp_path, clone], check=True)
        (wheel,) = tmp_path.glob("*.whl")
        what = [str(wheel)] if kind == "wheel" else ["--find-links", str(tmp_path), "barnabas"]
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", *quick, "--target", installed, *what], check=True)
    code = "from barnabas.base.installation import install_command; print(install_command('keystores'))"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    *_, install, last = shlex.split(shown.stdout)
    assert (install, last) == ("install", ("barnabas" if kind == "index" else what[0]) + "[keystores]")
    subprocess.run([*pip, "install", *quick, "--dry-run", last], env=environment, check=True)


def test_the_interpreter_is_named_where_the_shell_would_find_another_pip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An environment that is used without being activated."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command("keyring").startswith(shlex.join([sys.executable, "-m", "pip", "install"]))


def test_no_text_names_the_package_as_if_an_index_had_it() -> None:
    """Sources ask `install_command`; pages and examples start in a clone."""
    named = re.compile(r"barnabas\[|pip install (-\S+ )*['\"]?barnabas\b")
    allowed = {ROOT / "src" / "barnabas" / "base" / "installation.py"}
    found = [
        path.relative_to(ROOT).as_posix() for path in TEXTS if path not in allowed and named.search(path.read_text())
    ]
    assert found == []


def test_every_install_command_of_the_sources_names_an_extra_that_exists() -> None:
    """A hint with a misspelled extra installs nothing, and pip only warns."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra
        for path in TEXTS
        for call in re.findall(r"install_command\(([^)]*)\)", path.read_text())
        for extra in re.findall(r"['\"](\w+)['\"]", call)
    }
    assert {"keyring", "keystores", "outputs", "pipelines"} <= named <= set(extras)

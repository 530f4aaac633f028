"""The command that installs an extra of Barnabas, by the way in which Barnabas
itself was installed.

A hint that names an index is wrong for a package that came from a clone. pip and uv record where a
package came from (``direct_url.json``: PEP 610, and "Recording the Direct URL Origin of installed
distributions" on packaging.python.org):

    no record        an index                                 barnabas[EXTRA]
    dir_info         a folder, perhaps editable               /path/to/clone[EXTRA]
    archive_info     a wheel or a source archive, or its URL  /path/to/barnabas.whl[EXTRA]
    vcs_info         a repository at a commit                 barnabas[EXTRA] @ git+URL@COMMIT

Where the folder or the file is gone, the command names the extra's packages themselves.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["InstallOrigin", "install_command", "install_words", "origin_of", "packages_of"]

_PROJECT = "barnabas"
_FILE = "file://"


class InstallOrigin(NamedTuple):
    """Where an installed package came from: a ``path`` on this machine, a ``url``,
    or neither (an index)."""

    path: str = ""
    url: str = ""
    is_editable: bool = False


def install_command(*extras: str) -> str:
    """A line for the shell that adds ``extras`` to the environment that runs now, such as
    ``pip install 'barnabas[pipelines]'``."""
    from importlib import metadata  # only where something is missing

    try:
        distribution = metadata.distribution(_PROJECT)
    except metadata.PackageNotFoundError:  # run from its sources, by PYTHONPATH
        tree = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
        origin = InstallOrigin(tree) if os.path.isfile(os.path.join(tree, "pyproject.toml")) else InstallOrigin()
        return install_words(origin, extras, _installer())
    record = distribution.read_text("direct_url.json")
    origin = origin_of(json.loads(record)) if record else InstallOrigin()
    packages = packages_of(distribution.requires or (), extras)
    if origin.path and packages and not os.path.exists(origin.path):
        return shlex.join([*_installer(), *packages])
    return install_words(origin, extras, _installer())


def origin_of(record: Mapping[str, Any]) -> InstallOrigin:
    """What a ``direct_url.json`` says."""
    from urllib.parse import quote, urlsplit
    from urllib.request import url2pathname

    url = str(record["url"])
    folder = record.get("subdirectory")
    fragment = f"#subdirectory={quote(str(folder))}" if folder else ""
    if "vcs_info" in record:
        version_control = record["vcs_info"]
        return InstallOrigin(url=f"{version_control['vcs']}+{url}@{version_control['commit_id']}{fragment}")
    path = url2pathname(urlsplit(url).path) if url.startswith(_FILE) else ""
    # pip takes what follows a semicolon for a condition, and a folder in an archive
    # can stand in a URL only.
    if not path or fragment or ";" in path:
        return InstallOrigin(url=url + fragment)
    return InstallOrigin(path, is_editable=bool(record.get("dir_info", {}).get("editable")))


def install_words(origin: InstallOrigin, extras: Sequence[str], installer: Sequence[str]) -> str:
    """The line, quoted for a POSIX shell.

    ``installer`` is its first words, such as ``pip install``."""
    wanted = f"[{','.join(extras)}]"
    if origin.path:
        return shlex.join([*installer, *(["-e"] if origin.is_editable else []), origin.path + wanted])
    return shlex.join([*installer, f"{_PROJECT}{wanted}{f' @ {origin.url}' if origin.url else ''}"])


def packages_of(requirements: Iterable[str], extras: Sequence[str]) -> list[str]:
    """The requirements that belong to ``extras``, from a package's metadata (``Requires-Dist``)."""
    conditions = {f"extra=={quote}{extra}{quote}" for extra in extras for quote in "'\""}
    found = []
    for requirement in requirements:
        package, _, condition = requirement.partition(";")
        if condition.replace(" ", "") in conditions:
            found.append(package.strip())
    return found


def _installer() -> list[str]:
    """What installs into the environment of this interpreter: ``pip`` where the shell finds
    its own, else by its path."""
    import shutil
    from importlib.util import find_spec

    interpreter = sys.executable or "python3"
    if find_spec("pip") is not None:
        pip = shutil.which("pip")
        is_ours = pip is not None and os.path.realpath(os.path.dirname(pip)) == os.path.realpath(
            os.path.dirname(interpreter)
        )
        return ["pip", "install"] if is_ours else [interpreter, "-m", "pip", "install"]
    # uv and pipx make environments without pip.
    if shutil.which("uv"):
        return ["uv", "pip", "install", "--python", interpreter]
    return ["pip", "--python", interpreter, "install"]

"""Hooks of the documentation site (mkdocs.yml): the README as its front page, pages of API, and
files that pages link to.

Pages link to files of the repository as they are found from the page, so that the links work where
the repository is read. Here each such file becomes a page of its own, below ``code/``.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
API = {
    "client": (
        "The client's API",
        [
            "producer.producer",
            "consumer.consumer",
            "aio.producer",
            "aio.consumer",
            "admin.admin",
            "aio.admin",
            "records",
            "codecs",
            "registry.registry",
            "errors",
        ],
    ),
    "testing": (
        "The API for tests",
        [
            "cluster",
            "processes",
            "coordinator_kills",
            "virtual.cluster",
            "virtual.producer",
            "virtual.consumer",
            "virtual.program",
        ],
    ),
    "mirror": ("The mirror's API", ["maker", "settings", "replication_policy"]),
}
_LINK = re.compile(r"(\[[^\]]*\]\()([^)#:\s]+)(#[^)]*)?\)")
_SECOND = re.compile(
    r"(\]\([^)]*#[\w-]+)-(\d\))"
)  # the second heading of a name: Git hosts count with -1, here it is _1
_LANGUAGES = {".py": "python", ".md": "markdown", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".sh": "bash"}


def on_config(config: Any) -> Any:
    """Let a page that the navigation does not name stand at the end of its folder's section."""
    for section in config.nav:
        for pages in section.values() if isinstance(section, dict) else ():
            folder = posixpath.dirname(next(page for page in pages if isinstance(page, str)))
            present = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / folder).glob("*.md")]
            pages += sorted(set(present) - {page for page in pages if isinstance(page, str)})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that no file of the folder holds."""
    readme = (ROOT / "README.md").read_text()
    files.append(File.generated(config, "index.md", content=_LINK.sub(_from_the_root, readme)))
    for package, (title, modules) in API.items():
        names = "\n\n".join(f"::: barnabas.{package}.{module}" for module in modules)
        files.append(File.generated(config, f"reference/api-{package}.md", content=f"# {title}\n\n{names}\n"))
    for path in sorted(_linked_files()):
        text = (ROOT / path).read_text()
        language = _LANGUAGES.get(Path(path).suffix, "text")
        content = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n````{language}\n{text}\n````\n"
        files.append(File.generated(config, f"code/{path}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links that leave the folder lead to the pages under ``code/``."""
    if page.file.src_uri.startswith("code/"):
        return markdown
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def inside(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if target.startswith("docs/") or not (ROOT / target).exists():
            return match[0]
        if (ROOT / target).is_dir():
            return match[1].partition("[")[2].rpartition("]")[0]
        return f"{match[1]}{posixpath.relpath(f'docs/code/{target}.md', folder)})"

    return _SECOND.sub(r"\1_\2", _LINK.sub(inside, markdown))


def _from_the_root(match: re.Match[str]) -> str:
    """A link of the README, as seen from the folder."""
    target = match[2]
    moved = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    return f"{match[1]}{moved}{match[3] or ''})"


def _linked_files() -> set[str]:
    """The files outside of the folder that its pages and the README link to."""
    found = set()
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        folder = posixpath.dirname(page.relative_to(ROOT).as_posix())
        for match in _LINK.finditer(page.read_text()):
            target = posixpath.normpath(posixpath.join(folder, match[2]))
            if not target.startswith(("docs/", "..")) and (ROOT / target).is_file():
                found.add(target)
    return found

"""What mkdocs needs to show this repository as a site: pages from outside docs/, and links as GitHub follows them.

Files keep one kind of link, relative to where they lie in the repository. Here each is turned into one of the site; a
link to source code becomes plain text, or a link into ``repo_url`` where mkdocs.yml has one. A link to nothing is a
warning, and with --strict the end of the build.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "README.md": "index.md",
    **{name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")},
    **{
        str(path.relative_to(ROOT)): str(path.relative_to(ROOT))
        for path in sorted((ROOT / "benchmarks" / "results").rglob("*"))
        if path.suffix in (".md", ".png")
    },
}
"""What lies outside docs/: place in the repository -> place in the site."""
NOTEBOOKS = {
    str(path.relative_to(ROOT)): str(path.relative_to(ROOT / "docs").with_suffix(".md"))
    for path in sorted((ROOT / "docs").rglob("*.ipynb"))
}
"""Notebooks, in the same way."""
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<to>[^()\s]+)\)")
_log = get_plugin_logger("links")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and pictures from outside docs/, and notebooks as pages."""
    for place, source in OUTSIDE.items():
        files.append(File.generated(config, source, abs_src_path=str(ROOT / place)))
    for place, source in NOTEBOOKS.items():
        files.append(File.generated(config, source, content=notebook_page((ROOT / place).read_text(encoding="utf-8"))))
    return files


def notebook_page(text: str) -> str:
    """A notebook as Markdown: its words, code, and what that showed.

    Args:
        text: Of the file.
    """
    parts: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![What this cell shows](data:image/png;base64,{''.join(data['image/png'].split())})")
                continue
            shown = output.get("text") or data.get("text/plain") or output.get("traceback", [])
            parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links between files of the repository into links of the site."""
    inside = {source: place for place, source in (OUTSIDE | NOTEBOOKS).items()}
    place = inside.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def turned(found: re.Match[str]) -> str:
        to, hash_, anchor = found["to"].partition("#")
        if not to or re.match(r"\w+:", to):
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), to))
        if not (ROOT / target).exists():
            _log.warning("%s links to %s, which is not there", place, to)
        source = (OUTSIDE | NOTEBOOKS).get(target, target.removeprefix("docs/"))
        shown = files.get_file_from_path(source)
        if shown is None or not shown.inclusion.is_included():
            if not config.repo_url:
                return found["text"]
            return f"[{found['text']}]({config.repo_url.rstrip('/')}/blob/main/{target})"
        return f"{found['image']}[{found['text']}]({_way(page.file.src_uri, source)}{hash_}{anchor})"

    lines = re.split(r"(^ *```.*?^ *```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else _LINK.sub(turned, part) for i, part in enumerate(lines))


def _way(page: str, source: str) -> str:
    return posixpath.relpath(source, posixpath.dirname(page) or ".")

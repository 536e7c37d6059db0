"""The folder .cache/site, of which Zensical makes the site: settings (site.toml), README.md, docs/ and linked files.

The folders stay as they are, so the links between pages hold. If a page links to a file that is no page, the file is
copied; if it links to a folder, a list of the folder's files is made.
"""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
# This folder is not .cache itself, since Zensical uses .cache beside its settings as its cache, and may empty it.
SITE = ROOT / ".cache" / "site"
_LINK = re.compile(r"\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def main(site: Path = SITE) -> None:
    """Write the folder."""
    shutil.rmtree(site, ignore_errors=True)
    pages = site / "pages"
    pages.mkdir(parents=True)
    (site / "zensical.toml").write_text(_settings(os.environ.get("SITE_URL", "")))
    shutil.copy(Path(__file__).with_name("site.css"), pages)
    shutil.copytree(ROOT / "docs" / "img", pages / "docs" / "img")  # the chart's icon is one of them
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        for link, _ in set(_LINK.findall(text)):
            target = (page.parent / link).resolve()
            if target.is_dir():
                text = text.replace(f"]({link})", f"]({link.rstrip('/')}/README.md)")
                _write(pages, target / "README.md", _listing(pages, target))
            elif target.suffix != ".md" or not _is_page(target):
                _write(pages, target, target.read_bytes())
        _write(pages, page, text)


def _settings(address: str) -> str:
    """The content of site.toml, with the site's address if it is known, as in a release."""
    text = Path(__file__).with_name("site.toml").read_text()
    if not address:
        return text
    return text.replace("[project]\n", f'[project]\nsite_url = "{address}"\n', 1)


def _is_page(path: Path) -> bool:
    return path.parent == ROOT or (ROOT / "docs") in path.parents


def _listing(pages: Path, folder: Path) -> str:
    lines = [f"# {folder.relative_to(ROOT)}", ""]
    for path in sorted(folder.rglob("*.*")):
        if path.suffix in {".yaml", ".json", ".service", ".md"} and path.is_file():
            _write(pages, path, path.read_bytes())
            lines.append(f"- [{path.relative_to(folder)}]({path.relative_to(folder)})")
    return "\n".join(lines) + "\n"


def _write(pages: Path, path: Path, content: str | bytes) -> None:
    there = pages / path.relative_to(ROOT)
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    main()

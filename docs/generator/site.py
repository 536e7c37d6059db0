"""What Zensical makes the site of, in .cache/site: its settings (site.toml), README.md, docs/ and what they link to.

The folders stay as they are, so the links between pages hold. What a page links to and is no page goes along: a file as
it is, a folder as a list of its files.
"""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A folder of its own: Zensical takes the folder .cache beside its settings for its cache, and may empty it.
SITE = ROOT / ".cache" / "site"
PAGES = SITE / "pages"
_LINK = re.compile(r"\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def main() -> None:
    """Write the folder anew."""
    shutil.rmtree(SITE, ignore_errors=True)
    PAGES.mkdir(parents=True)
    (SITE / "zensical.toml").write_text(_settings(os.environ.get("SITE_URL", "")))
    shutil.copytree(ROOT / "docs" / "img", PAGES / "docs" / "img")  # the chart's icon is among them
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        for link, _ in set(_LINK.findall(text)):
            target = (page.parent / link).resolve()
            if target.is_dir():
                text = text.replace(f"]({link})", f"]({link.rstrip('/')}/README.md)")
                _write(target / "README.md", _listing(target))
            elif target.suffix != ".md" or not _is_page(target):
                _write(target, target.read_bytes())
        _write(page, text)


def _settings(address: str) -> str:
    """site.toml, with the address of the site where it is known: a release sets it."""
    text = Path(__file__).with_name("site.toml").read_text()
    if not address:
        return text
    return text.replace("[project]\n", f'[project]\nsite_url = "{address}"\n', 1)


def _is_page(path: Path) -> bool:
    return path.parent == ROOT or (ROOT / "docs") in path.parents


def _listing(folder: Path) -> str:
    lines = [f"# {folder.relative_to(ROOT)}", ""]
    for path in sorted(folder.rglob("*.*")):
        if path.suffix in {".yaml", ".json", ".service", ".md"} and path.is_file():
            _write(path, path.read_bytes())
            lines.append(f"- [{path.relative_to(folder)}]({path.relative_to(folder)})")
    return "\n".join(lines) + "\n"


def _write(path: Path, content: str | bytes) -> None:
    there = PAGES / path.relative_to(ROOT)
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(content.encode() if isinstance(content, str) else content)


if __name__ == "__main__":
    main()

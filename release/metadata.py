"""What the wheel says of itself on PyPI: README.md, and the addresses of the project's site where there is one.

The project owns no address. SITE_URL in the environment (with a slash at its end) is the one place that names the site
for wheel, chart, krew's manifest and the site itself; without it none of them names an address of the project's own.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {
    "Homepage": "",
    "Documentation": "docs/",
    "Changelog": "CHANGELOG/",
    "Troubleshooting": "docs/troubleshooting/",
    "Security": "SECURITY/",
}
# [text](target), where the target is a file of the repository, and the same for a picture
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?P<target>(?![a-z]+:|#)[^)\s]*)\)")


class SiteMetadata(MetadataHookInterface):
    """Hatch's hook: it fills what pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README and the URLs to the project's metadata."""
        site = os.environ.get("SITE_URL", "")
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, site)}
        metadata["urls"] = {name: site + page for name, page in PAGES.items()} if site else {}


def readme(text: str, site: str) -> str:
    """README.md for a place where no other file of the repository is.

    With a site its links and pictures lead there. Without one a link is its text alone, and a picture is left out.
    """

    def replaced(link: re.Match[str]) -> str:
        if site:
            return f"{link['picture']}[{link['text']}]({site}{page_of(link['target'])})"
        return "" if link["picture"] else link["text"]

    # a link's text may be broken over two lines, but holds no link of its own
    return _LINK.sub(replaced, text)


def page_of(target: str) -> str:
    """The place on the site of a file of the repository: a page is a folder there, README.md its parent."""
    path, hash_sign, anchor = target.partition("#")
    if path.endswith(".md"):
        path = path.removesuffix(".md").removesuffix("README") + "/"
    return path.replace("//", "/").lstrip("/") + hash_sign + anchor

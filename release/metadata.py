"""The wheel's metadata for PyPI: README.md, and the addresses of the project's site if there is one.

The project owns no address. SITE_URL in the environment (with a slash at its end) is the only name of the site for
wheel, chart, krew's manifest and the site itself. Without it, none of them has an address of the project's own.
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
# a link [text](target) or a picture whose target is a file of the repository
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?P<target>(?![a-z]+:|#)[^)\s]*)\)")


class SiteMetadata(MetadataHookInterface):
    """Hatch's hook, which fills in the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README and the URLs to the project's metadata."""
        site = os.environ.get("SITE_URL", "")
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, site)}
        metadata["urls"] = {name: site + page for name, page in PAGES.items()} if site else {}


def readme(text: str, site: str) -> str:
    """README.md for a place without the other files of the repository.

    With a site, its links and pictures lead there. Without one, only a link's text stays, and pictures are left out.
    """

    def replaced(link: re.Match[str]) -> str:
        if site:
            return f"{link['picture']}[{link['text']}]({site}{page_of(link['target'])})"
        return "" if link["picture"] else link["text"]

    # a link's text may be broken over two lines, but has no link in it
    return _LINK.sub(replaced, text)


def page_of(target: str) -> str:
    """A repository file's place on the site. A page is a folder there; README.md is the page of its own folder."""
    path, hash_sign, anchor = target.partition("#")
    if path.endswith(".md"):
        path = path.removesuffix(".md").removesuffix("README") + "/"
    return path.replace("//", "/").lstrip("/") + hash_sign + anchor

"""Where the tests find what they read: the checkout, recorded answers and pages, goldens."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data"
GOLDEN = ROOT / "tests" / "golden"
# the site of a release that the tests make
SITE = "https://site.example/"


def behind(url: str) -> Path | None:
    """The file or folder of the repository that an address of the docs' site shows; a page is a folder there."""
    path = ROOT / url.partition("#")[0].removeprefix(SITE).strip("/")
    pages = [path / "README.md", path.with_name(f"{path.name}.md")] if url.partition("#")[0].endswith("/") else [path]
    return next((page for page in pages if page.exists()), None)

"""Add the Debian packages of an image to its SBOM: `os_packages.py SBOM STATUS OS_RELEASE`, each a file's path.

The SBOM (CycloneDX JSON) already names the Python packages. STATUS is dpkg's list, /var/lib/dpkg/status; an image
without one (Alpine, Red Hat) ends the build, because a list of its contents that leaves half out is worse than none.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from email import message_from_string
from pathlib import Path
from typing import Any

from packageurl import PackageURL


def packages(status: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and architecture of each installed package of a dpkg status file, in its order."""
    for paragraph in status.split("\n\n"):
        found = message_from_string(paragraph)  # the format is that of mail headers
        if found.get("Status", "").endswith(" installed"):
            yield found["Package"], found["Version"], found["Architecture"]


def os_release(text: str) -> Mapping[str, str]:
    """The keys of os-release(5), without their quotes."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key: value.strip("\"'") for key, value in pairs}


def component(name: str, version: str, architecture: str, release: Mapping[str, str]) -> dict[str, Any]:
    """A package as CycloneDX has it, with the package URL that scanners look vulnerabilities up by."""
    vendor = release.get("ID", "debian")
    distribution = "-".join(filter(None, (vendor, release.get("VERSION_ID", ""))))
    purl = PackageURL("deb", vendor, name, version, {"arch": architecture, "distro": distribution}).to_string()
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def with_os_packages(sbom: Mapping[str, Any], status: str, release: Mapping[str, str]) -> dict[str, Any]:
    """The SBOM with the packages of the operating system after its own components.

    Raises:
        ValueError: `status` lists no package.
    """
    found = [component(*package, release) for package in sorted(packages(status))]
    if not found:
        raise ValueError("dpkg's status file lists no installed package")
    return {**sbom, "components": [*sbom.get("components", ()), *found]}


def main(sbom: str, status: str, release: str) -> None:
    """Rewrite the SBOM in its place."""
    path, found = Path(sbom), os_release(Path(release).read_text())
    whole = with_os_packages(json.loads(path.read_text()), Path(status).read_text(), found)
    path.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

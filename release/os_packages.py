"""Add the packages of the base image to an image's SBOM: `os_packages.py SBOM STATUS OS_RELEASE`, each a file's path.

The SBOM (CycloneDX JSON) already names the packages that pip installed. The base image brings two more things: the
Python that runs this script, and the Debian packages. STATUS is dpkg's list, /var/lib/dpkg/status. If a base has no
such file (Alpine, Red Hat), the SBOM calls itself incomplete. A list without a package ends the build.
"""

import json
import platform
import sys
from collections.abc import Iterator, Mapping
from email import message_from_string
from pathlib import Path
from typing import Any

from packageurl import PackageURL


def packages(status: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and architecture of each installed package of a dpkg status file, in its order."""
    for paragraph in status.split("\n\n"):
        fields = message_from_string(paragraph)  # the format is the same as that of mail headers
        if fields.get("Status", "").endswith(" installed"):
            yield fields["Package"], fields["Version"], fields["Architecture"]


def os_release(text: str) -> Mapping[str, str]:
    """The keys of os-release(5), without their quotes."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key: value.strip("\"'") for key, value in pairs}


def component(name: str, version: str, architecture: str, release: Mapping[str, str]) -> dict[str, Any]:
    """A package in the form of CycloneDX, with the package URL by which scanners find vulnerabilities."""
    vendor = release.get("ID", "debian")
    distribution = "-".join(filter(None, (vendor, release.get("VERSION_ID", ""))))
    purl = PackageURL("deb", vendor, name, version, {"arch": architecture, "distro": distribution}).to_string()
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def interpreter(version: str) -> dict[str, Any]:
    """CPython, which the images of python.org have in /usr/local, unknown to any package manager."""
    purl = PackageURL("generic", None, "python", version).to_string()
    cpe = f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*"
    return {"type": "application", "bom-ref": purl, "name": "python", "version": version, "cpe": cpe, "purl": purl}


def with_os_packages(sbom: Mapping[str, Any], status: str, release: Mapping[str, str]) -> dict[str, Any]:
    """The SBOM with the packages of the operating system after its own components.

    Raises:
        ValueError: `status` lists no package.
    """
    of_the_system = [component(*package, release) for package in sorted(packages(status))]
    if not of_the_system:
        raise ValueError("dpkg's status file lists no installed package")
    return {**sbom, "components": [*sbom.get("components", ()), *of_the_system]}


def main(sbom: str, status: str, release: str) -> None:
    """Rewrite the SBOM in its place."""
    path, dpkg = Path(sbom), Path(status)
    whole = json.loads(path.read_text())
    whole["components"] = [*whole.get("components", ()), interpreter(platform.python_version())]
    if dpkg.exists():
        whole = with_os_packages(whole, dpkg.read_text(), os_release(Path(release).read_text()))
    else:
        sys.stderr.write(f"{status} is missing: the SBOM does not name the packages of the operating system\n")
        whole["compositions"] = [{"aggregate": "incomplete"}]
    path.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

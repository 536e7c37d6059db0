#!/usr/bin/env python3
"""Pack `kubectl gpu` for krew: `release/krew.py FOLDER` writes the archive and its manifest, gpu.yaml.

The archive is for every machine with Python 3.11. It has the plugin, the modules that it imports, two libraries in pure
Python, and all licences. It has no compiled library such as grpc or aiohttp, since kubectl itself asks the server. All
dates are SOURCE_DATE_EPOCH, so the same commit makes the same bytes. RELEASE_URL is the folder where the archive will
be; without it the manifest has only the file's name. SITE_URL is the home page.
"""

import gzip
import hashlib
import io
import os
import sys
import tarfile
import time
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("click", "rich")
# the rooms of the exporter that no command of the plugin imports
LEFT_OUT = (
    "_gen",
    "cluster",
    "node",
    "operator",
    "probe",
    "simulator",
    "sources/kubelet",
    "sources/nvml",
    "web",
)
MAIN = """#!/usr/bin/env python3
import os
import sys

if sys.version_info < (3, 11):
    sys.exit("kubectl gpu: it needs Python 3.11 or later, and python3 is " + sys.version.split()[0])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from exporter.kubectl.command import {function}

{function}()
"""
MANIFEST = """apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: gpu
spec:
  version: v{version}
{homepage}  shortDescription: Who holds GPUs, how busy they are, and why not
  description: |
    top, who, idle, why, report and bundle: GPUs and the pods that hold them, from
    pod-gpu-metrics-exporter in your cluster, through the API server's proxy.
    top, who and idle also ask the dcgm-exporters that are there: --nothing-installed.
  caveats: |
    It needs python3 (3.11 or later), pod-gpu-metrics-exporter or dcgm-exporter in
    the cluster, and the right to get services/proxy or pods/proxy in its namespace.
  platforms:
    - selector:
        matchExpressions:
          - {{key: os, operator: In, values: [linux, darwin]}}
      uri: {url}{archive}
      sha256: {sha256}
      bin: kubectl-gpu
"""


def files() -> Iterator[tuple[str, bytes]]:
    """The files of the archive, by their names in it."""
    yield "LICENSE", (ROOT / "LICENSE").read_bytes()
    yield "kubectl-gpu", MAIN.format(function="main").encode()
    yield "kubectl_complete-gpu", MAIN.format(function="complete").encode()
    for path in sorted((ROOT / "exporter").rglob("*")):
        name = path.relative_to(ROOT / "exporter").as_posix()
        is_left_out = "__pycache__" in path.parts or name.startswith(tuple(f"{room}/" for room in LEFT_OUT))
        if path.is_file() and not is_left_out:
            yield f"lib/exporter/{name}", path.read_bytes()
    for library in LIBRARIES:
        for file in sorted(distribution(library).files or ()):
            is_code = PurePosixPath(file).suffix == ".py" and file.parts[0] == library
            if is_code or "licen" in file.name.lower():
                yield f"lib/{file.as_posix()}", file.read_binary()


def pack(when: int) -> bytes:
    """The archive; `when` is the date of each file."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=when, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in files():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), when
            entry.mode = 0o755 if name.startswith("kubectl") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def main(folder: str) -> None:
    """Write the archive and its manifest."""
    version = next(
        line.split('"')[1]
        for line in (ROOT / "exporter/__init__.py").read_text().splitlines()
        if "__version__ =" in line
    )
    content = pack(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()))
    archive = f"kubectl-gpu-{version}.tar.gz"
    url = os.environ.get("RELEASE_URL", "")
    site = os.environ.get("SITE_URL", "")
    sha256 = hashlib.sha256(content).hexdigest()
    (Path(folder) / archive).write_bytes(content)
    manifest = MANIFEST.format(
        version=version,
        homepage=f"  homepage: {site}\n" if site else "",
        url=f"{url}/" if url else "",
        archive=archive,
        sha256=sha256,
    )
    (Path(folder) / "gpu.yaml").write_text(manifest)


if __name__ == "__main__":
    main(*sys.argv[1:])

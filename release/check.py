#!/usr/bin/env python3
"""Install a release from its files alone, like a user who has downloaded them, and check that it works.

`release/check.py FOLDER [--only PART]… [--libraries PATH]`. The parts are checksums, wheel, sdist, plugin, chart and
image. Wheel and sdist are installed into fresh environments, with the libraries that the lock file names. With
--libraries those in the folder PATH are used instead, and nothing is downloaded. The chart needs helm, or
helm-python-sdk beside this Python. The image needs root and buildah, and runs without a container engine. If a file is
wrong, the exit code is 1, and one line names the file and the fault.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 120
NAME = "pod-gpu-metrics-exporter"
WHEEL, SIMULATOR = "pod_gpu_metrics_exporter-*.whl", "pod_gpu_metrics_exporter_simulator-*.whl"
EXIT_CONFIG = 2
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# This does what a container runtime does with readOnlyRootFilesystem. The mounts end with the program.
RUN_IN_IMAGE = """
mount --make-rprivate /
mount --bind "$1" "$1"
for name in proc dev; do mount --rbind "/$name" "$1/$name"; done
mount -t tmpfs tmp "$1/tmp"
mount -o remount,bind,ro "$1"
exec chroot "$@"
"""


class WrongError(Exception):
    """The release is wrong. The text says in one line what is wrong."""


class Release:
    """The files of a release.

    Raises:
        WrongError: it has neither a wheel nor an image.
    """

    def __init__(self, folder: Path, libraries: Path | None) -> None:
        self.folder, self.libraries = folder.resolve(), libraries
        names = [path.name for pattern in ("*.whl", "*.oci.tar") for path in self.folder.glob(pattern)]
        if not names:
            raise WrongError(f"{self.folder} has neither a wheel nor an image: make release makes them in dist")
        self.version = names[0].removeprefix(NAME).split("-")[1]

    def one(self, pattern: str) -> Path:
        """The file that matches a pattern.

        Raises:
            WrongError: no file matches it, or several do.
        """
        paths = list(self.folder.glob(pattern))
        if len(paths) != 1:
            raise WrongError(f"{self.folder} has {len(paths)} files {pattern}: one is needed")
        return paths[0]


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """The output of a program.

    Raises:
        WrongError: the program failed.
    """
    ended = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        last_line = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:]
        raise WrongError(f"{' '.join(map(str, command))} ends with {ended.returncode}: {' '.join(last_line)}")
    return ended.stdout


def answers(command: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> str:
    """Start the demo, read its page with owners, and end it. Return the page.

    Raises:
        WrongError: the program ended by itself, or its page names no pod.
    """
    process = subprocess.Popen(
        [*command, "demo", "--web.listen-address=127.0.0.1:0"], cwd=cwd, env=env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        written = ""
        while not (address := re.search(r"curl -s (\S+)/gpu/metrics", written)):
            line = process.stderr.readline()
            if not line:
                raise WrongError(f"the demo ends with {process.wait()}: {written.strip()}")
            written += line
        base = f"http://{address[1]}"
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{base}/gpu/metrics", timeout=30) as response:
                page: str = response.read().decode()
                if re.search(r'^DCGM_FI_DEV_POWER_USAGE\{.*pod="[a-z]', page, re.MULTILINE):
                    with urllib.request.urlopen(f"{base}/openapi.json", timeout=30) as other:
                        json.load(other)  # fails if the files beside the code are missing
                    return page
            time.sleep(0.2)
        raise WrongError(f"the demo's /gpu/metrics names no pod after {PATIENCE_SECONDS} s")
    finally:
        process.terminate()
        process.communicate()


def lacks_the_simulator(command: Sequence[str | Path], env: Mapping[str, str]) -> None:
    """Check that the demo ends with one line that says how to get the simulator.

    Raises:
        WrongError: it runs, or says something else.
    """
    ended = subprocess.run([*command, "demo"], env=env, capture_output=True, text=True, check=False)
    is_one_line = ended.stderr.count("\n") == 1
    if ended.returncode != EXIT_CONFIG or not is_one_line or f"pip install '{NAME}[demo]'" not in ended.stderr:
        raise WrongError(f"without the simulator the demo ends with {ended.returncode}: {ended.stderr.strip()}")


def checksums(release: Release) -> str:
    """Check that SHA256SUMS names every file, with its checksum."""
    lines = (release.folder / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {path.name: path for path in release.folder.iterdir() if path.name != "SHA256SUMS"}
    if odd := listed.keys() ^ files.keys():
        raise WrongError(f"SHA256SUMS and {release.folder} differ in {', '.join(sorted(odd))}")
    for name, path in files.items():
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != listed[name]:
                raise WrongError(f"{name} is not the file that SHA256SUMS names")
    return f"{len(files)} files are those of SHA256SUMS"


@contextlib.contextmanager
def environment(release: Release) -> Iterator[tuple[Path, list[str | Path]]]:
    """Make a fresh environment and delete it afterwards: its folder bin/, and the pip command that installs into it."""
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder, "venv")
        if release.libraries is None:
            run(sys.executable, "-m", "venv", venv)
            yield venv / "bin", [venv / "bin" / "pip", "install", "-q"]
            return
        run(sys.executable, "-m", "venv", "--without-pip", venv)
        (packages,) = venv.glob("lib/python3*/site-packages")
        (packages / "libraries.pth").write_text(f"{release.libraries.resolve()}\n")
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "-q"]
        # what is not imported need not be compiled
        yield venv / "bin", [*pip, "--no-deps", "--no-index", "--ignore-installed", "--no-compile"]


def plain(bin_folder: Path) -> dict[str, str]:
    """Variables of an environment without anything of the checkout or the user, except what pip needs for a proxy."""
    kept = {
        name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") or name.startswith("PIP_")
    }
    return {**kept, "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}


def wheel(release: Release) -> str:
    """Install the wheel by its hash, with the lock file's libraries. Each of its commands must answer.

    The demo must say how to get the simulator, and answer once the simulator's wheel is installed, too.
    """
    path, lock = release.one(WHEEL), release.one("requirements-*.txt")
    with environment(release) as (commands, pip), tempfile.TemporaryDirectory() as empty:
        ours = Path(empty, "wheel.txt")
        ours.write_text("".join(re.findall(rf"^{NAME}==.*\n(?: .*\n)*", lock.read_text(), re.MULTILINE)))
        env = plain(commands)
        run(
            *(*pip, "--require-hashes", "--find-links", release.folder),
            *("-r", ours if release.libraries else lock),
            cwd=Path(empty), env=env,
        )  # fmt: skip
        version = run(commands / NAME, "--version", cwd=Path(empty), env=env)
        if release.version not in version:
            raise WrongError(f"{path.name} says that it is {version.strip()}")
        with zipfile.ZipFile(path) as archive:
            (scripts,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
            names = re.findall(r"^([\w-]+) = ", archive.read(scripts).decode(), re.MULTILINE)
        for name in names:
            run(commands / name, "--help", cwd=Path(empty), env=env)
        lacks_the_simulator([commands / NAME], env)
        run(*pip, "--no-deps", release.one(SIMULATOR), cwd=Path(empty), env=env)
        answers([commands / NAME], Path(empty), env)
    return f"installed by its hash; {' and '.join(names)} answer; with the simulator's wheel the demo's page names pods"


def sdist(release: Release) -> str:
    """Check that a wheel built from the sdist has the same files as the wheel."""
    path = release.one(f"{NAME.replace('-', '_')}-*.tar.gz")
    with environment(release) as (commands, pip), tempfile.TemporaryDirectory() as empty:
        before, after = pip[: pip.index("install")], ["--no-index", "--no-build-isolation"] if release.libraries else []
        run(*before, "wheel", "-q", "--no-deps", *after, "-w", empty, path, cwd=Path(empty), env=plain(commands))
        (other,) = Path(empty).glob("*.whl")
        contents = [
            {item.filename: item.CRC for item in zipfile.ZipFile(each).infolist() if ".dist-info/" not in item.filename}
            for each in (other, release.one(WHEEL))
        ]
    if contents[0] != contents[1]:
        odd = sorted(name for name, _ in contents[0].items() ^ contents[1].items())
        raise WrongError(f"{path.name} builds another wheel: {', '.join(odd[:3])}")
    return "builds the wheel that is beside it"


def plugin(release: Release) -> str:
    """Check kubectl's plugin: the archive that krew's manifest names must run with no library but its own."""
    archive, manifest_file = release.one("kubectl-gpu-*.tar.gz"), release.one("gpu.yaml")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest not in (text := manifest_file.read_text()) or not re.search(rf"[ /]{re.escape(archive.name)}\n", text):
        raise WrongError(f"{manifest_file.name} names another archive than {archive.name}")
    with tempfile.TemporaryDirectory() as folder:
        run("tar", "-xzf", archive, "-C", folder)
        run(sys.executable, "-I", "-S", f"{folder}/kubectl-gpu", "--help", env={"PATH": "/usr/bin:/bin"})
    return f"{archive.name} is the one of {manifest_file.name}, and answers"


def rendered(chart: Path, values: Mapping[str, str]) -> str:
    """The objects that the chart makes of values, which are given by their paths."""
    try:
        import helm_python  # noqa: PLC0415 - without it, helm is used
    except ImportError:
        flags = [f"--set={path}={value}" for path, value in values.items()]
        return run("helm", "template", NAME, chart, "--namespace=gpus", *flags)
    helm_python.disable_logging()
    loaded = helm_python.Chart.load(chart)
    given: dict[str, Any] = {}
    for path, value in values.items():
        table, _, key = path.rpartition(".")
        given.setdefault(table, {})[key] = value
    loaded.validate_schema(given)
    return "\n".join(loaded.render(given, name=NAME, namespace="gpus").values())


def chart(release: Release) -> str:
    """Render the chart with its own values, and with the image by its digest."""
    path = release.one("*.tgz")
    if f"{NAME}-{release.version}.tgz" != path.name:
        raise WrongError(f"{path.name} is not of version {release.version}")
    own = re.findall(r"^ +image: (\S+)$", rendered(path, {}), re.MULTILINE)
    digests = [manifest(archive)[0] for archive in release.folder.glob("*.oci.tar")] or ["sha256:" + "0f" * 32]
    for digest in digests:
        values = {"image.repository": f"registry.example/{NAME}", "image.digest": digest}
        images = re.findall(r"^ +image: (\S+)$", rendered(path, values), re.MULTILINE)
        # the DaemonSet and the pod of `helm test`
        if {image for image in images if NAME in image} != {f"registry.example/{NAME}@{digest}"}:
            raise WrongError(f"{path.name} runs {', '.join(images)} instead of the image with the digest {digest}")
    return f"rendered with its own values ({', '.join(own)}) and with an image by digest"


def manifest(archive: Path) -> tuple[str, dict[str, Any]]:
    """The digest and the configuration of the image in an OCI archive.

    Raises:
        WrongError: a blob's content does not match the digest in its name.
    """
    with tarfile.open(archive) as tar:
        blobs: dict[str, bytes] = {}
        for member in tar:
            if not member.isfile() or (file := tar.extractfile(member)) is None:
                continue
            content = file.read()
            if member.name.startswith("blobs/"):
                digest = hashlib.sha256(content).hexdigest()
                if not member.name.endswith(digest):
                    raise WrongError(f"{archive.name}: {member.name} has the digest {digest}")
            if member.size < 1 << 20:  # not a layer
                blobs[member.name] = content
    digest = json.loads(blobs["index.json"])["manifests"][0]["digest"]
    layers = json.loads(blobs[f"blobs/{digest.replace(':', '/')}"])
    return digest, json.loads(blobs[f"blobs/{layers['config']['digest'].replace(':', '/')}"])


def image(release: Release) -> str:
    """Run the image if it is for this machine's architecture, beside the simulator; else only read it."""
    here = ARCHITECTURES.get(platform.machine(), platform.machine())
    shown = []
    for archive in sorted(release.folder.glob("*.oci.tar")):
        digest, config = manifest(archive)
        labels = config["config"]["Labels"]
        if labels["org.opencontainers.image.version"] != release.version:
            raise WrongError(f"{archive.name} is of version {labels['org.opencontainers.image.version']}")
        if not archive.name.endswith(f"-{config['architecture']}.oci.tar"):
            raise WrongError(f"{archive.name} is for {config['architecture']}")
        if config["architecture"] == here:
            count = runs(release, archive, config["config"])
            shown.append(f"{here} runs, and its SBOM names its {count} packages ({digest})")
        else:
            shown.append(f"{config['architecture']} is whole, and is not run here ({digest})")
    if not any(text.startswith(here) for text in shown):
        raise WrongError(f"{release.folder} has no image for {here}")
    return "; ".join(shown)


def runs(release: Release, archive: Path, config: Mapping[str, Any]) -> int:
    """Unpack the image as a container engine does, and run its program. Return the number of packages in its SBOM.

    Raises:
        WrongError: the program or its SBOM is wrong.
    """
    with tempfile.TemporaryDirectory() as work:
        store = ("buildah", "--root", f"{work}/storage", "--runroot", f"{work}/run", "--storage-driver", "vfs")
        pulled = run(*store, "pull", "--quiet", f"oci-archive:{archive}").strip()
        container = run(*store, "from", "--quiet", pulled).strip()
        root = Path(run(*store, "mount", container).strip())
        try:
            inside = ("unshare", "--mount", "sh", "-euc", RUN_IN_IMAGE, "sh", root, "env", "-i", *config["Env"])
            command = [*inside, *config["Entrypoint"]]
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
            version = run(*command, "--version", env=env)
            if release.version not in version:
                raise WrongError(f"{archive.name} says that it is {version.strip()}")
            if (root / "opt/exporter/exporter/simulator").exists():
                raise WrongError(f"{archive.name} has the simulator, which is for the demo alone")
            lacks_the_simulator(command, env)
            run(sys.executable, "-m", "zipfile", "-e", release.one(SIMULATOR), root / "opt/exporter")
            answers(command, Path(work), env)
            (unpacked,) = (root / "opt/exporter").glob("pod_gpu_metrics_exporter_simulator-*.dist-info")
            shutil.rmtree(unpacked)
            return packages(root, release.folder / archive.name.replace(".oci.tar", ".cdx.json"))
        finally:
            run(*store, "umount", container)
            run(*store, "rm", container)


def packages(root: Path, beside: Path) -> int:
    """The number of packages in the SBOM, which must name every package that is installed in the image.

    Raises:
        WrongError: a package is missing, or the file in the image differs from the one beside it.
    """
    text = (root / "opt/exporter/sbom.cdx.json").read_bytes()
    if text != beside.read_bytes():
        raise WrongError(f"{beside.name} is not the SBOM that is in the image")
    components = json.loads(text)["components"]
    listed = {(item["name"].lower().replace("_", "-"), item["version"]) for item in components}
    python = {path.stem.rpartition("-")[::2] for path in (root / "opt/exporter").glob("*.dist-info")}
    paragraphs = (root / "var/lib/dpkg/status").read_text().split("\n\n")
    fields = [dict(re.findall(r"^(Package|Status|Version): (.*)$", text, re.MULTILINE)) for text in paragraphs]
    debian = {(of["Package"], of["Version"]) for of in fields if of.get("Status", "").endswith(" installed")}
    installed = {(name.lower().replace("_", "-"), version) for name, version in python | debian}
    if len(python) < 2 or len(debian) < 2 or (missing := installed - listed):  # noqa: PLR2004
        raise WrongError(f"{beside.name} does not name {', '.join(' '.join(part) for part in sorted(missing)[:3])}")
    return len(listed)


PARTS = {part.__name__: part for part in (checksums, wheel, sdist, plugin, chart, image)}


def main() -> int:
    """Check the parts one after the other. Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--libraries", type=Path)
    given = parser.parse_args()
    try:
        release = Release(given.folder, given.libraries)
        for name in given.only or PARTS:
            start = time.monotonic()
            result = PARTS[name](release)
            print(f"{name}: {result} ({time.monotonic() - start:.0f} s)", flush=True)
    except (WrongError, OSError) as error:
        print(f"release/check.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

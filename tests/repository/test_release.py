"""What a release consists of: reproducible packages, notes, an SBOM of everything, workflows that call make."""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from exporter import __version__
from release import os_packages, publish
from tests.support import quick_yaml
from tests.support.chart import helm
from tests.support.places import ROOT, SITE, behind

NAME = "pod-gpu-metrics-exporter"
WHEEL = "pod_gpu_metrics_exporter-*.whl"
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
Description: GNU C Library
 with a second line: of its own

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: libssl3t64
Status: install ok installed
Architecture: amd64
Version: 1:3.5.1-1+deb13u1
"""
DEBIAN = {"ID": "debian", "VERSION_ID": "13"}


def test_the_sbom_names_what_dpkg_has_installed_and_nothing_else() -> None:
    python = {"type": "library", "name": "aiohttp", "version": "3.14"}
    found = os_packages.with_os_packages({"bomFormat": "CycloneDX", "components": [python]}, STATUS, DEBIAN)
    assert found["bomFormat"] == "CycloneDX"
    assert found["components"][0] == python
    assert [part["purl"] for part in found["components"][1:]] == [
        "pkg:deb/debian/libc6@2.41-12?arch=amd64&distro=debian-13",
        "pkg:deb/debian/libssl3t64@1:3.5.1-1%2Bdeb13u1?arch=amd64&distro=debian-13",
    ]


def test_an_image_whose_packages_cannot_be_listed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sbom").write_text("{}")
    (tmp_path / "status").write_text("")
    (tmp_path / "os-release").write_text('ID="alpine"\n')
    with pytest.raises(ValueError, match="no installed package"):
        os_packages.main(*(str(tmp_path / name) for name in ("sbom", "status", "os-release")))


def test_an_image_that_dpkg_does_not_know_says_that_its_list_is_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sbom").write_text('{"components": []}')
    os_packages.main(*(str(tmp_path / name) for name in ("sbom", "status", "os-release")))
    sbom = json.loads((tmp_path / "sbom").read_text())
    assert sbom["compositions"] == [{"aggregate": "incomplete"}]
    assert [part["name"] for part in sbom["components"]] == ["python"]
    assert "status is missing" in capsys.readouterr().err


def test_the_sbom_is_written_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "sbom").write_text('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": []}')
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "os-release").write_text('# where from\nNAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="13"\n')
    os_packages.main(*(str(tmp_path / name) for name in ("sbom", "status", "os-release")))
    written = (tmp_path / "sbom").read_text()
    components = json.loads(written)["components"]
    assert [part["name"] for part in components] == ["python", "libc6", "libssl3t64"]
    assert components[0]["purl"] == f"pkg:generic/python@{platform.python_version()}"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written) is None


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release has for every machine, with its checksums."""
    folder = tmp_path_factory.mktemp("dist")
    pack(folder)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


def pack(folder: Path, site: str = "") -> None:
    env = {"SOURCE_DATE_EPOCH": "1760000000", "PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "SITE_URL": site}
    subprocess.run([ROOT / "release" / "packages", folder], env=env, check=True, capture_output=True)


def digests(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def tried(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "release" / "check.py", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_packages_come_out_as_the_same_bytes_twice(packages: Path, tmp_path: Path) -> None:
    once = digests(packages)
    assert once.keys() == {
        f"pod_gpu_metrics_exporter-{__version__}-py3-none-any.whl",
        f"pod_gpu_metrics_exporter_simulator-{__version__}-py3-none-any.whl",
        f"pod_gpu_metrics_exporter-{__version__}.tar.gz",
        f"pod-gpu-metrics-exporter-{__version__}.tgz",
        f"requirements-{__version__}.txt",
        f"kubectl-gpu-{__version__}.tar.gz",
        "gpu.yaml",
    }
    pack(tmp_path)
    assert digests(tmp_path) == once


# issue 26, "Less in the way"
def test_each_file_of_the_program_is_in_exactly_one_wheel(packages: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "exporter"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = set(tracked.stdout.split())  # data beside the code, too
    simulated = {name for name in files if name.startswith("exporter/simulator/")}
    with zipfile.ZipFile(next(packages.glob(WHEEL))) as wheel:
        names = set(wheel.namelist())
        assert files - simulated <= names
        assert [name for name in names if "simulator" in name] == []
    with zipfile.ZipFile(next(packages.glob("pod_gpu_metrics_exporter_simulator-*.whl"))) as wheel:
        assert {name for name in wheel.namelist() if name.endswith((".py", ".c"))} == simulated


def metadata_of_the_wheel(folder: Path) -> str:
    with zipfile.ZipFile(next(folder.glob(WHEEL))) as wheel:
        return wheel.read(next(name for name in wheel.namelist() if name.endswith("/METADATA"))).decode()


def addresses(metadata: str) -> list[str]:
    """Where the wheel's metadata leads: its own URLs, and the links and pictures of its README."""
    links = re.findall(r'\]\(([^)\s]+)|(?:src|srcset|href)="([^"\s]+)', metadata)
    return [
        *re.findall(r"^Project-URL: \w+, (\S+)$", metadata, re.MULTILINE),
        *("".join(link) for link in links),
    ]


def chart_of(folder: Path) -> dict[str, str]:
    """The chart's files by name."""
    with tarfile.open(next(folder.glob("pod-gpu-metrics-exporter-*.tgz"))) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name.partition("/")[2]: file.read().decode() for name, file in files.items() if file}


# issue 22, line 23
def test_without_a_site_a_release_leads_to_no_address_of_its_own(packages: Path) -> None:
    metadata = metadata_of_the_wheel(packages)
    assert "Project-URL" not in metadata
    hosts = {re.sub(r"^https?://([^/]+).*", r"\1", url) for url in addresses(metadata) if not url.startswith("#")}
    assert hosts <= {"github.com", "localhost:9400", "localhost:9500"}
    chart = chart_of(packages)
    assert {"docs/alerts.md", "docs/troubleshooting.md"} <= chart.keys()
    assert "://" not in chart["Chart.yaml"]
    plugin = quick_yaml.load((packages / "gpu.yaml").read_text())["spec"]
    assert "homepage" not in plugin
    assert {platform["uri"] for platform in plugin["platforms"]} == {f"kubectl-gpu-{__version__}.tar.gz"}


# issue 22, line 23
def test_with_a_site_each_link_of_a_release_is_to_a_page_of_it(tmp_path: Path) -> None:
    pack(tmp_path, SITE)
    urls = addresses(metadata_of_the_wheel(tmp_path))
    chart = chart_of(tmp_path)
    urls += re.findall(rf"{SITE}\S*", chart["Chart.yaml"] + chart["values.yaml"])
    urls += re.findall(rf"{SITE}\S*", (tmp_path / "gpu.yaml").read_text())
    ours = [url for url in urls if url.startswith(SITE)]
    assert len(ours) > 50
    assert [url for url in ours if url != SITE and behind(url) is None] == []
    # PyPI shows the README alone: a relative link or picture would lead nowhere there
    assert [url for url in urls if not re.match("https?://|#", url)] == []
    metadata = quick_yaml.load(chart["Chart.yaml"])
    links = quick_yaml.load(metadata["annotations"]["artifacthub.io/links"])
    assert (metadata["home"], len(links)) == (SITE, 4)
    assert behind(metadata["icon"]) is not None
    assert quick_yaml.load(chart["values.yaml"])["prometheusRule"]["runbooks"] == f"{SITE}docs/alerts/"


# issue 32, "Must show" 5; `make release` tries the image as well, and fetches the libraries as a user does
@pytest.mark.real
def test_what_is_packed_is_installed_from_its_files_and_works(packages: Path) -> None:
    helm()
    parts = ["checksums", "wheel", "sdist", "plugin", "chart"]
    libraries = ["--libraries", sysconfig.get_path("purelib")]
    ended = tried(packages, *libraries, *(word for part in parts for word in ("--only", part)))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line.partition(":")[0] for line in ended.stdout.splitlines()] == parts


def test_a_file_that_is_not_the_one_that_was_made_is_named(packages: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dist"
    shutil.copytree(packages, folder)
    name = f"pod-gpu-metrics-exporter-{__version__}.tgz"
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    ended = tried(folder, "--only", "checksums")
    assert (ended.returncode, ended.stderr) == (1, f"release/check.py: {name} is not the file that SHA256SUMS names\n")
    (folder / name).unlink()
    ended = tried(folder, "--only", "checksums")
    assert (ended.returncode, name in ended.stderr, ended.stderr.count("\n")) == (1, True, 1)


@pytest.mark.real
def test_what_is_published_names_image_and_chart_by_digest(packages: Path, tmp_path: Path) -> None:
    helm()
    folder = tmp_path / "dist"
    shutil.copytree(packages, folder)
    (folder / f"NOTES-{__version__}.md").write_text("# The notes\n")
    image, chart = (f"ghcr.io/owner/{name}@sha256:{2 * digit * 32}" for name, digit in (("image", "a"), ("chart", "b")))
    subprocess.run([ROOT / "release" / "chart", folder, image], check=True)
    publish.finish(folder, __version__, image, chart)
    for path in publish.MANIFESTS:
        text = (folder / Path(path).name).read_text()
        assert f"pod-gpu-metrics-exporter:{__version__}" not in text
        assert path.endswith("crds.yaml") or f"image: {image}\n" in text
    assert f"--operator.exporter-image={image}" in (folder / "operator.yaml").read_text()
    notes = (folder / f"NOTES-{__version__}.md").read_text()
    assert notes.startswith("# The notes\n")
    assert f"helm install pod-gpu-metrics-exporter oci://{chart} " in notes
    ended = tried(folder, "--only", "checksums", "--only", "chart")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f" {image}) and with an image by digest" in ended.stdout


@pytest.mark.parametrize(("layer", "says"), [(b"layer", "is whole, and is not run here"), (b"other", "has the digest")])
def test_an_image_for_another_machine_is_read(packages: Path, tmp_path: Path, layer: bytes, says: str) -> None:
    """A blob that is not what its name says is found, and an archive for this machine is missed."""
    shutil.copy(next(packages.glob(WHEEL)), tmp_path)
    config = {"architecture": "sparc64", "config": {"Labels": {"org.opencontainers.image.version": __version__}}}
    blobs: dict[str, bytes] = {"layer": b"layer", "config": json.dumps(config).encode()}
    names = {of: f"sha256:{hashlib.sha256(content).hexdigest()}" for of, content in blobs.items()}
    manifest = {"config": {"digest": names["config"]}, "layers": [{"digest": names["layer"]}]}
    blobs["manifest"] = json.dumps(manifest).encode()
    names["manifest"] = f"sha256:{hashlib.sha256(blobs['manifest']).hexdigest()}"
    blobs["layer"] = layer
    files = {f"blobs/{names[of].replace(':', '/')}": content for of, content in blobs.items()}
    files["index.json"] = json.dumps({"manifests": [{"digest": names["manifest"]}]}).encode()
    with tarfile.open(tmp_path / f"pod-gpu-metrics-exporter-{__version__}-sparc64.oci.tar", "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    ended = tried(tmp_path, "--only", "image")
    assert ended.returncode == 1
    assert says in ended.stderr or "has no image for" in ended.stderr
    assert ("has the digest" in ended.stderr) is (layer == b"other")


def notes(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "release" / "notes"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_notes_are_the_versions_section_of_the_changelog(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- new\n\n## 1.2.0 (2026-11-01)\n\n- old\n")
    assert notes(tmp_path, "1.2.0", "--tagged").stdout == "# 1.2.0\n\n- old\n"
    assert notes(tmp_path, "1.3.0").stdout == "# 1.3.0\n\n- new\n"
    refused = notes(tmp_path, "1.3.0", "--tagged")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no section '## 1.3.0'" in refused.stderr


def test_the_changelog_has_a_dated_section_for_this_version() -> None:
    """Between releases the program keeps the version of the last one."""
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} \(20\d\d-\d\d-\d\d\)", titles[1])
    assert notes(ROOT, __version__, "--tagged").stdout.startswith(f"# {__version__}\n\n")


def test_the_version_is_the_same_wherever_it_stands() -> None:
    """It is written in exporter/__init__.py; pyproject.toml reads it there, all others are held to it here."""
    image = re.compile(r"pod-gpu-metrics-exporter:(\d[\w.-]*)")
    pages = (ROOT / "README.md", ROOT / "docs" / "install.md", ROOT / "daemonset.yaml")
    for path in (*pages, *(ROOT / "deploy").rglob("*.yaml")):
        for version in image.findall(path.read_text()):
            assert version == __version__, path
    assert re.search(r"^ARG VERSION=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[1] == __version__  # type: ignore[index]
    assert quick_yaml.load((ROOT / "docs/openapi.yaml").read_text())["info"]["version"] == __version__
    simulator = tomllib.loads((ROOT / "release/simulator/pyproject.toml").read_text())["project"]
    assert (simulator["version"], simulator["dependencies"]) == (__version__, [f"{NAME}=={__version__}"])
    exporter = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert exporter["optional-dependencies"]["demo"] == [f"{simulator['name']}=={__version__}"]


WORKFLOWS = {path.name: quick_yaml.load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()}


def test_the_workflows_call_the_scripts_and_targets_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called: set[str] = set()
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            for step in job["steps"]:
                for make in re.findall(r"make ([a-z -]+)", step.get("run", "")):
                    called |= set(make.split())
                for script in re.findall(r"(?<![\w/.-])(?:\.ci|release|tests)/[\w.-]+", step.get("run", "")):
                    assert os.access(ROOT / script, os.X_OK), script
    assert called == {"docs", "lint", "test", "release"}
    assert all(quick_yaml.load(path.read_text()) for path in (ROOT / ".github").rglob("*.y*ml"))
    assert called <= targets


def test_what_a_workflow_refers_to_is_there() -> None:
    """Jobs that are waited for, outputs of steps, what one job hands to another: GitHub takes a wrong name as empty."""
    for workflow in WORKFLOWS.values():
        uploads: list[str] = []
        for job in workflow["jobs"].values():
            needs = job.get("needs", [])
            assert {needs} if isinstance(needs, str) else set(needs) <= workflow["jobs"].keys()
            steps = {step["id"] for step in job["steps"] if "id" in step}
            for step, output in re.findall(r"steps\.(\w+)\.outputs\.([\w-]+)", json.dumps(job)):
                assert step in steps
                assert output in publish.OUTPUTS
            for step in job["steps"]:
                if "/upload-artifact@" in step.get("uses", ""):
                    uploads.append(re.sub(r"\$\{\{.*?\}\}", "*", step["with"]["name"]))
                if "/download-artifact@" in step.get("uses", ""):
                    assert step["with"].get("name", step["with"].get("pattern")) in uploads
        assert workflow["permissions"] in ({}, {"contents": "read"})  # a job has no more than it says


def test_a_commit_is_checked_by_the_tools_of_make_lint() -> None:
    (ours,) = quick_yaml.load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"] for hook in ours["hooks"]]
    (recipe,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for tool in re.findall(r"\$\(BIN\)/([a-z-]+(?: [a-z]+)?)", recipe):
        assert any(entry.startswith(f".venv/bin/{tool}") for entry in entries), tool

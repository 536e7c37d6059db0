#!/usr/bin/env python3
"""Push a release's image and chart to a registry, and write their digests into the other files of the release.

`release/publish.py FOLDER REGISTRY`, where REGISTRY is a host and an owner, such as ghcr.io/OWNER. The archives of all
architectures in FOLDER become one image, REGISTRY/pod-gpu-metrics-exporter. The chart is packed again, with that image
as its default, and pushed to REGISTRY/charts. After that, FOLDER also has the plain manifests with the image's digest,
the notes end with the commands that install exactly these files, and SHA256SUMS is that of all files. The program needs
root, buildah and helm-python-sdk. REGISTRY_USER and REGISTRY_PASSWORD are user and password. --plain-http is for
a registry on this machine. The output is lines of NAME=VALUE, which a workflow reads.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "pod-gpu-metrics-exporter"
MANIFESTS = (
    "daemonset.yaml",
    "deploy/daemonset-beside-gpu-operator.yaml",
    "deploy/cluster.yaml",
    "deploy/operator/crds.yaml",
    "deploy/operator/operator.yaml",
)
OUTPUTS = ("version", "image", "image-digest", "chart", "chart-digest")
NOTES = """
## Install this release

With Helm, by the chart's digest; `--version {version}` in place of it is the same chart:

```
kubectl create namespace pod-gpu-metrics
kubectl label namespace pod-gpu-metrics pod-security.kubernetes.io/enforce=privileged
helm install {name} oci://{chart} -n pod-gpu-metrics
```

With kubectl and the manifests of this release, `kubectl apply -f daemonset.yaml`. Without Kubernetes, each library by
its hash:

```
pip install --require-hashes -r requirements-{version}.txt
```

Chart and manifests run this image and no other, for {platforms}: `{image}`.
`gh attestation verify oci://{image} --repo {repository}` says where it was made, and from which commit.
"""


def main() -> None:
    """Publish the release."""
    import helm_python  # noqa: PLC0415 - there is none for some of the machines that run the tests

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("registry")
    parser.add_argument("--plain-http", action="store_true")
    given = parser.parse_args()
    folder, registry, plain = given.folder.resolve(), given.registry.lower(), given.plain_http
    version = next(folder.glob("*.whl")).name.split("-")[1]
    archives = sorted(folder.glob("*.oci.tar"))
    with tempfile.TemporaryDirectory() as work:
        logins = log_in(Path(work), registry.partition("/")[0], plain)
        digest = push_image(Path(work), archives, f"{registry}/{NAME}:{version}", plain)
        image = f"{registry}/{NAME}@{digest}"
        commit = ["git", "log", "-1", "--format=%ct"]
        date = subprocess.run(commit, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
        environment = {**os.environ, "SOURCE_DATE_EPOCH": date}
        subprocess.run([ROOT / "release" / "chart", folder, image], check=True, env=environment)
        client = helm_python.RegistryClient(plain_http=plain, credentials_file=logins)
        client.push(folder / f"{NAME}-{version}.tgz", f"oci://{registry}/charts", plain_http=plain)
        chart = f"{registry}/charts/{NAME}"
        chart += f"@{client.resolve(f'oci://{chart}:{version}')['digest']}"
    finish(folder, version, image, chart)
    values = (version, *image.split("@"), *chart.split("@"))
    sys.stdout.write("".join(f"{name}={value}\n" for name, value in zip(OUTPUTS, values, strict=True)))


def finish(folder: Path, version: str, image: str, chart: str) -> None:
    """Write the manifests, the end of the notes, and the checksums. `image` and `chart` are names with digests."""
    for path in MANIFESTS:
        text = (ROOT / path).read_text().replace(f"{NAME}:{version}", image)
        (folder / Path(path).name).write_text(text)
    platforms = " and ".join(
        f"linux/{path.name.split('-')[-1].partition('.')[0]}" for path in sorted(folder.glob("*.oci.tar"))
    )
    repository = os.environ.get("GITHUB_REPOSITORY", "REPOSITORY")
    with (folder / f"NOTES-{version}.md").open("a") as notes:
        notes.write(
            NOTES.format(
                image=image, platforms=platforms, name=NAME, version=version, chart=chart, repository=repository
            )
        )
    paths = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (folder / "SHA256SUMS").write_text("".join(lines))


def log_in(work: Path, host: str, plain_http: bool) -> Path:
    """Log in if there is a password. Return the file of logins, which buildah and Helm both read."""
    logins = work / "logins.json"
    logins.write_text("{}")
    if password := os.environ.get("REGISTRY_PASSWORD"):
        command = ["buildah", "login", f"--tls-verify={not plain_http}".lower(), f"--authfile={logins}"]
        command += [f"--username={os.environ['REGISTRY_USER']}", "--password-stdin", host]
        subprocess.run(command, input=password, text=True, check=True, stdout=subprocess.DEVNULL)
    return logins


def push_image(work: Path, archives: list[Path], name: str, plain_http: bool) -> str:
    """Push the images of all architectures as one, under a name. Return its digest."""
    store = ["buildah", "--root", f"{work}/storage", "--runroot", f"{work}/run", "--storage-driver", "vfs"]
    digest = work / "digest"
    push = ["push", "--quiet", "--all", "--format=oci", f"--digestfile={digest}", f"--authfile={work}/logins.json"]
    commands = [
        ["create", name],
        *(["add", name, f"oci-archive:{archive}"] for archive in archives),
        [*push, f"--tls-verify={not plain_http}".lower(), name, f"docker://{name}"],
    ]
    for command in commands:
        subprocess.run([*store, "manifest", *command], check=True, stdout=subprocess.DEVNULL)
    return digest.read_text()


if __name__ == "__main__":
    main()

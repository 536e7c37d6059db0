"""A real kubectl explains every field of both kinds, in the words of deploy/operator/crds.yaml."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docs.generator.operator_fields import fields
from tests.operator.specs import CRDS, SCHEMAS
from tests.support.components import real
from tests.support.operator import Api, until

pytestmark = [pytest.mark.real, pytest.mark.kubernetes]
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """What kubectl prints on an API server with both kinds."""
    program, folder, api = real("kubectl"), tmp_path_factory.mktemp("kubectl"), Api()
    api.start()
    # a real API server tells of the schemas a moment after it serves their kinds; kubectl remembers what it was told
    until(lambda: are_described(api), 30)

    def run(*arguments: str) -> str:
        flags = [
            f"--server={api.url}",
            "--token=admin",
            "--insecure-skip-tls-verify",
            f"--cache-dir={folder / 'cache'}",
        ]
        ended = subprocess.run(
            [program, *flags, *arguments], capture_output=True, text=True, check=False, timeout=30, env=_nobody(folder)
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    yield run
    api.stop()


def _nobody(folder: Path) -> dict[str, str]:
    """No configuration of whoever runs the tests."""
    return {"HOME": str(folder), "KUBECONFIG": "/dev/null"}


def are_described(api: Api) -> bool:
    """Whether the API server tells of the schemas of both kinds."""
    status, told = api.ask("GET", "/openapi/v3/apis/pod-gpu-metrics.dev/v1alpha1")
    return status == 200 and all(
        f"dev.pod-gpu-metrics.v1alpha1.{kind}" in told["components"]["schemas"] for kind in CRDS
    )


def words(text: str) -> str:
    return " ".join(text.split())


# issue 14, "Must show" 3
@pytest.mark.parametrize("kind", CRDS)
def test_every_field_is_named(kubectl: Kubectl, kind: str) -> None:
    for part in ("spec", "status"):
        told = re.findall(r"^ +(\w+)\t<", kubectl("explain", f"{kind.lower()}.{part}", "--recursive"), re.MULTILINE)
        names = [
            path.rpartition(".")[2]
            for path, _, _ in fields(SCHEMAS[kind]["properties"][part], "")
            if not path.endswith(("[]", ".*"))
        ]
        assert sorted(told) == sorted(names)


# issue 14, "Must show" 3
@pytest.mark.parametrize("kind", CRDS)
def test_every_object_says_what_its_fields_are(kubectl: Kubectl, kind: str) -> None:
    """Asked once for each field that has fields; these stand there with their texts."""
    schema = SCHEMAS[kind]
    asked = [("", schema), *((path, each) for path, each, _ in fields(schema, "") if "properties" in each)]
    for path, each in asked:
        if path.startswith(".metadata"):
            continue
        said = words(kubectl("explain", f"{kind.lower()}{path.replace('[]', '')}"))
        assert words(each["description"]) in said
        for name, described in each["properties"].items():
            if path or name in ("spec", "status"):
                assert words(described["description"]) in said, f"{path}.{name}"

"""The Dockerfile, without building it. tests/image has the tests of the image."""

import os
import re
import shutil
import subprocess

import pytest

from tests.support.components import real
from tests.support.places import ROOT


# issue 7, line 18
def test_the_base_is_named_by_its_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.13\.\d+-slim-trixie@sha256:[0-9a-f]{64}", base)


@pytest.mark.real
def test_hadolint() -> None:
    program = shutil.which("hadolint", path=f"{ROOT}/.venv/bin:{os.environ['PATH']}") or str(real("hadolint"))
    ended = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "")

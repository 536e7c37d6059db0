"""What the tests of the CUDA probe take of a machine."""

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skip this test, or in CI let it fail, because the machine lacks this."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"this takes {what}")
    pytest.skip(f"this takes {what}")


def root() -> None:
    """Go on as root alone."""
    if os.geteuid() != 0:
        lacking("root")

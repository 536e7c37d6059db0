"""`demo --fail`: what fails, and when."""

import math
from typing import Any, NamedTuple

import click

_USUAL_SECONDS = 30.0
_KINDS = ("gpu", "link")


class Fails(NamedTuple):
    """After how many seconds what fails; never if it is infinite."""

    gpu_seconds: float = math.inf
    link_seconds: float = math.inf


NEVER = Fails()


class FailFlag(click.ParamType[Fails]):
    """The value of --fail: SECONDS, `link` or `link:SECONDS`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fails:  # noqa: ANN401
        """Raises click.BadParameter: it is none of these."""
        if isinstance(value, Fails):
            return value
        kind, _, after = str(value).partition(":")
        if kind not in _KINDS:
            kind, after = "gpu", str(value)
        try:
            seconds = float(after) if after else _USUAL_SECONDS
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < math.inf:
            self.fail(f"{value!r} is neither seconds nor gpu, link, gpu:SECONDS or link:SECONDS", param, ctx)
        return Fails(**{f"{kind}_seconds": seconds})

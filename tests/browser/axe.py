"""axe-core's rules of accessibility (WCAG 2.1 A and AA, and good practice), run in a tab."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from tests.support.chromium import Tab

_OPTIONS = {"resultTypes": ["violations"]}


@cache
def _script() -> str:
    return (files("axe_core_python") / "axe.min.js").read_text()


async def violations(tab: Tab) -> list[str]:
    """What is broken, each with the first element that breaks it."""
    await tab.run(_script())
    found: list[dict[str, Any]] = await tab.run(f"axe.run(document, {json.dumps(_OPTIONS)}).then((r) => r.violations)")
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}; {len(rule['nodes'])} times: {rule['nodes'][0]['html'][:200]}"
        f" {rule['nodes'][0]['failureSummary'][:300]}"
        for rule in found
    ]

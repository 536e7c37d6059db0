"""The rows of a page by whom they are of."""

import re
from collections import defaultdict
from decimal import Decimal

_SAMPLE = re.compile(r"(DCGM_FI_\w+){(.*)} (\S+)")

# by pod and container, "" for nobody
Rows = dict[tuple[str, str], Decimal]


def rows_of(page: str) -> dict[str, dict[str, Rows]]:
    """By family, and by the GPU's UUID. For pages without MIG."""
    found: defaultdict[str, defaultdict[str, Rows]] = defaultdict(lambda: defaultdict(dict))
    for name, labels, value in _SAMPLE.findall(page):
        of = dict(pair.split("=", 1) for pair in labels.replace('"', "").split(","))
        found[name][of["UUID"]][of.get("pod", ""), of.get("container", "")] = Decimal(value)
    return dict(found)

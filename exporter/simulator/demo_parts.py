"""How many of a demo node's GPUs are shared, cut, claimed and so on.

Tests: tests/end_to_end/test_demo_states.py.
"""

from typing import Any

import click

DRA_CLAIMS = 3
# If there are several nodes, every eighth has shared and cut GPUs, beginning with the fifth.
_FIRST_MIXED_NODE = 4
_GPUS_OF_A_MIXED_NODE = 4


def is_mixed_node(number: int, gpus: int) -> bool:
    """Whether a node has shared and cut GPUs, by its number among several."""
    return number % 8 == _FIRST_MIXED_NODE and gpus >= _GPUS_OF_A_MIXED_NODE


def parts_of(
    gpus: int, shared: int | None, mig: int | None, claims: int | None, units: int, *, is_mixed: bool, is_dra_on: bool
) -> dict[str, Any]:
    """The numbers of a node's GPUs that are shared, cut and so on. Raises click.UsageError if they are too many."""
    if shared is None:
        shared = 2 if is_mixed else 0
    if mig is None:
        mig = int(is_mixed and shared + (claims or 0) + units < gpus)
    if claims is None:
        claims = min(DRA_CLAIMS, max(0, gpus - shared - mig - units)) if is_dra_on else 0
    if shared + mig + claims + units > gpus:
        kinds = f"--shared {shared}, --mig {mig}, --claims {claims} and --units {units}"
        raise click.UsageError(f"{kinds} are more than --gpus {gpus}")
    return {"shared": shared, "mig": mig, "claims": claims, "units": units, "dynamic": int(claims > 1)}

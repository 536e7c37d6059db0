"""All reference pages, and the text of each file."""

from collections.abc import Mapping
from pathlib import Path

from docs.generator import endpoints, flags, health, metrics, operator_fields, rooms

FOLDER = Path(__file__).parents[1]


def texts() -> Mapping[str, str]:
    """The text of each file, by the file's name."""
    return {
        "flags.md": flags.page(),
        "endpoints.md": endpoints.page(),
        "metrics.md": metrics.page(),
        "health.md": health.page(),
        "operator-fields.md": operator_fields.page(),
        "developers/design.md": rooms.page(),
    }

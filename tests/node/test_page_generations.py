"""What generation of DCGM a page is of, as a running exporter shows it; and the unit that follows from it."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.exposition.units import RATIO
from tests.support.exporter import Start
from tests.support.places import DATA

UUID = "GPU-abababab-0000-4000-8000-000000000000"
# DCGM 4.6's second names, as a counters file can ask dcgm-exporter 4.8.3 for them
ALIASES = ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_BOARD_POWER_WATTS")


def page_of(ratios: tuple[str, ...]) -> str:
    """A page of aliases with these values of the name that has two units."""
    rows = [(name, "33") for name in ALIASES]
    labels = [f'gpu="{gpu}",UUID="{UUID[:-1]}{gpu}",modelName="H100",hostname="a"' for gpu in range(len(ratios))]
    aliases = [f"{name}{{{labels[0]}}} {value}\n" for name, value in rows]
    return "".join(
        [*aliases, *(f"{RATIO.decode()}{{{label}}} {value}\n" for label, value in zip(labels, ratios, strict=True))]
    )


async def debug_of(start: Start, path: Path) -> tuple[Any, dict[str, Any], list[str], Any]:
    """The source, its findings and the objects of an exporter that reads this file."""
    exporter = await start(dcgm_file=str(path))
    debug = json.loads((await exporter.get("/debug/mapping"))[1])
    objects = json.loads((await exporter.get("/container/metrics"))[1])
    findings = [finding for finding in debug["doctor"]["findings"] if finding["about"] == f"file:{path}"]
    return exporter, debug["sources"][f"file:{path}"], [f"{each['level']} {each['says']}" for each in findings], objects


# issue 26, Must show 4
@pytest.mark.parametrize(
    ("name", "generation", "says"),
    [
        ("1", ("", "", "1.x"), "the shell version of dcgm-exporter (1.x)"),
        ("3", ("3.3.9", "4.5.3", "4.8"), "DCGM 3.3.9 to 4.5.3, with the names up to dcgm-exporter 4.8"),
        ("4.8", ("4.6.0", "4.7.0", "4.8"), "DCGM 4.6.0 to 4.7.0, with the names up to dcgm-exporter 4.8"),
        ("4.9", ("4.7.0", "4.7.0", "4.9"), "DCGM 4.7.0, with the newer names"),
    ],
)
async def test_doctor_and_the_mapping_show_a_pages_generation(
    start: Start, tmp_path: Path, name: str, generation: tuple[str, str, str], says: str
) -> None:
    path = tmp_path / "dcgm.prom"
    path.write_bytes((DATA / "pages" / f"{name}.prom").read_bytes())
    _, source, findings, _ = await debug_of(start, path)
    first, last, names = generation
    assert source["generation"] == {"first": first, "last": last, "names": names, "contradicts": False}
    assert f"ok its page is of {says}" in findings


# issue 26, part 5
@pytest.mark.parametrize(
    ("ratios", "last", "percent", "warns"),
    [
        (("87", "0"), "4.6.1", [87, 0], False),
        (("0.87", "0"), "4.7.0", [87, 0], False),
        (("1", "0"), "4.7.0", [None, 0], True),
        (("87", "0.5"), "4.7.0", [None, None], True),
    ],
)
async def test_a_page_of_aliases_has_the_unit_of_its_generation(
    start: Start, tmp_path: Path, ratios: tuple[str, ...], last: str, percent: list[float | None], warns: bool
) -> None:
    path = tmp_path / "dcgm.prom"
    path.write_text(page_of(ratios))
    _, source, findings, objects = await debug_of(start, path)
    ours = [row["gpu_utilization"] for row in objects if row["device_uuid"].startswith(UUID[:12])]
    assert ours == percent
    assert (source["generation"]["first"], source["generation"]["last"]) == ("4.6.0", last)
    assert any(text.startswith("warning") and "percent with DCGM 4.6" in text for text in findings) is warns

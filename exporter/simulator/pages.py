"""dcgm-exporter's page as each of its generations writes it. Pure: rows and families in, text out.

- 1: the shell version. GPU by GPU, so families are interleaved; HELP and TYPE once, at GPU 0; labels gpu and uuid.
- 3: 2.x, 3.x, and 4.x up to 4.8.2. Integers as integers, other values with six decimals; label values not escaped.
- 4.8: 4.8.3 and later. Label hostname, families sorted, values as Go's %g prints them, label values escaped.
- 4.9: as 4.8, with the new names and units.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from exporter.simulator.families import LOW_UTIL_VIOLATION, Family
from exporter.simulator.parts import bus_id
from exporter.simulator.profiles import H100
from exporter.simulator.readings import Labels, Reading

GENERATIONS = ("1", "3", "4.8", "4.9")
DRIVER_VERSION = "580.105.08"
# Go's Prometheus client prints values with FormatFloat(x, 'g', -1, 64). That writes an exponent for numbers of 1e6 or
# more, and for numbers below 1e-4.
_GO_EXPONENT = 6
_GO_SMALLEST = -4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One device of a page, a GPU or a MIG instance of it.

    `readings` are its values by the families' older names; a family that is not among them has no sample of the device.
    Without them the values follow from how busy it is (0 to 1), which makes pages that are always the same.
    """

    index: int
    uuid: str
    busy: float = 0.0
    profile: str = ""
    instance_id: int | None = None
    owner: tuple[str, str, str] | None = None  # container, namespace, pod; with -k
    vgpu: str = ""
    model: str = H100.model
    readings: Mapping[str, Reading] | None = None


def page(
    rows: Sequence[Row],
    families: Sequence[Family],
    *,
    generation: str,
    host_name: str,
    seconds: float,
    attributed: bool = False,
    links: bool = False,
) -> str:
    """The page `seconds` after the start of dcgm-exporter.

    `attributed` is dcgm-exporter's flag -k: container, namespace and pod on every row, empty for idle devices. `links`
    adds a row for an NvLink of each GPU, one for a CPU and one for an NvSwitch.
    """
    if generation == "1":
        return _oldest(rows, families, seconds)
    new_names = generation == "4.9"
    named = [(family.newer if new_names else family.name, family) for family in families]
    if generation != "3":
        named.sort()
    labelled = [(row, _labels(row, generation, host_name, attributed=attributed)) for row in rows]
    lines: list[str] = []
    for name, family in named:
        factor = family.factor if new_names else 1.0
        samples = [
            f"{name}{{{labels}{''.join(f',{_text((label,))}' for label in more)}}}"
            f" {_number(family, value, factor, generation)}"
            for row, labels in labelled
            for more, value in _values(family, row, seconds)
        ]
        if samples:
            lines += (f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}", *samples)
    if links:
        lines += _link_rows(rows, host_name, generation)
    return "\n".join(lines) + "\n"


def _oldest(rows: Sequence[Row], families: Sequence[Family], seconds: float) -> str:
    lines: list[str] = []
    for row in rows:
        for family in (*families, LOW_UTIL_VIOLATION):
            if not family.oldest or row.instance_id is not None:
                continue
            if row is rows[0]:
                lines += (f"# HELP {family.oldest} {family.help}", f"# TYPE {family.oldest} {family.kind}")
            for _, value in _values(family, row, seconds):
                number = _number(family, value, 1.0, "3")
                lines.append(f'{family.oldest}{{gpu="{row.index}",uuid="{row.uuid}"}} {number}')
    return "\n".join(lines) + "\n"


def _values(family: Family, row: Row, seconds: float) -> Iterable[tuple[Labels, float]]:
    """The family's values on a row, most often one, each with the labels that it has besides the row's."""
    if row.readings is None:
        return [((), family.value(row.busy, seconds))] if family.per_instance or row.instance_id is None else ()
    reading = row.readings.get(family.name, ())
    return [((), reading)] if isinstance(reading, int | float) else reading


def _labels(row: Row, generation: str, host_name: str, *, attributed: bool) -> str:
    labels = [
        ("gpu", str(row.index)),
        ("UUID", row.uuid),
        ("pci_bus_id", bus_id(row.index)),
        ("device", f"nvidia{row.index}"),
        ("modelName", row.model),
    ]
    if row.instance_id is not None:
        labels += [("GPU_I_PROFILE", row.profile), ("GPU_I_ID", str(row.instance_id))]
    labels.append(("Hostname" if generation == "3" else "hostname", host_name))
    labels.append(
        ("DCGM_FI_SYSTEM_DRIVER_VERSION" if generation == "4.9" else "DCGM_FI_DRIVER_VERSION", DRIVER_VERSION)
    )
    if attributed:
        labels += zip(("container", "namespace", "pod"), row.owner or ("", "", ""), strict=True)
        if row.vgpu:
            labels.append(("vgpu", row.vgpu))
    return _text(labels)


def _text(labels: Iterable[tuple[str, str]]) -> str:
    # no text of a simulated node needs escaping, so all generations write the same
    return ",".join(f'{name}="{value}"' for name, value in labels)


def _number(family: Family, number: float, factor: float, generation: str) -> str:
    if generation != "3":
        return go_g((number if family.real else round(number)) * factor)
    return f"{number:.6f}" if family.real else str(round(number))


def go_g(number: float) -> str:
    """A number as Go's %g prints it with the shortest precision: 4300000000 is 4.3e+09, 81000 is 81000."""
    shortest = Decimal(repr(float(number))).normalize()
    exponent = shortest.adjusted()
    if shortest and (exponent < _GO_SMALLEST or exponent >= _GO_EXPONENT):
        digits = "".join(map(str, shortest.as_tuple().digits))
        mantissa = digits[0] + ("." + digits[1:] if digits[1:] else "")
        return f"{'-' if number < 0 else ''}{mantissa}e{exponent:+03d}"
    return f"{shortest:f}"


def _link_rows(rows: Sequence[Row], host_name: str, generation: str) -> list[str]:
    host = ("Hostname" if generation == "3" else "hostname", host_name)
    lines = ["# HELP DCGM_FI_PROF_NVLINK_TX_BYTES Bytes sent over an NvLink a second."]
    lines.append("# TYPE DCGM_FI_PROF_NVLINK_TX_BYTES gauge")
    for row in rows:
        if row.instance_id is None:
            labels = (
                ("nvlink", "0"),
                ("gpu", str(row.index)),
                ("gpu_uuid", row.uuid),
                ("pci_bus_id", bus_id(row.index)),
                ("device", f"nvidia{row.index}"),
                ("model_name", row.model),
                host,
            )
            lines.append(f"DCGM_FI_PROF_NVLINK_TX_BYTES{{{_text(labels)}}} {round(row.busy * 1_000_000)}")
    for kind, name, value in (
        ("cpu", "DCGM_FI_DEV_CPU_UTIL_TOTAL", "0.25"),
        ("nvswitch", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", "41"),
    ):
        lines += (
            f"# HELP {name} Of the {kind}.",
            f"# TYPE {name} gauge",
            f"{name}{{{_text(((kind, '0'), host))}}} {value}",
        )
    return lines

"""Generated pages: what dcgm-exporter writes, what it should not write, and what nobody would."""

import random
from dataclasses import dataclass

from hypothesis import strategies as st

from exporter.dividing.sharing import CounterBook
from exporter.model.devices import Assignment, Owners
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners

UUIDS = tuple(f"GPU-0000000{number}-aaaa-bbbb-cccc-dddddddddddd" for number in range(4))
ODD_TEXT = st.text(
    st.one_of(
        st.sampled_from('\\"{}=,# \t1.eE+-nN_:\r'),
        st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]),
    ),
    max_size=12,
)
METRIC_NAMES = st.sampled_from(
    (
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "dcgm_gpu_temp",
        "a",
        "_:x",
        "lat",
        "lat_sum",
        "lat_count",
        "lat_bucket",
        "pod_gpu_exporter_source_up",
    )
)
LABEL_NAMES = st.sampled_from(
    ("gpu", "device", "modelName", "Hostname", "err_msg", "GPU_I_ID", "GPU_I_PROFILE", "vgpu", "le", "quantile", "_x")
)
OWNER_LABELS = st.sampled_from(("pod", "namespace", "container", "pod_name", "pod_uid", "gpu_shared", "x"))
VALUES = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(repr),
    st.floats(0, 1e6).map(lambda number: f"{number:.6f}"),
    st.sampled_from(("0", "NaN", "+Inf", "-Inf", "inf", "Infinity", "1e5", "1E-7", ".5", "5.", "+1", "4.3e+09", "00")),
)
ODD_WORDS = (b"1e999", b"-1e999", b"N/A", b"1_0", b"", b"nan", b"+Inf", b"1\t", b"--1", b"1.2.3", b"1\xff", b"+", b"e")
BAD_VALUES = st.one_of(
    st.sampled_from(
        ("", "1_0", "1e999", "+nan", "0x1p3", "N/A", "ERROR - FAILED", "1,5", "--1", "1e", ".", "\u0661", "{1")
    ),
    ODD_TEXT,
)


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True)
class Row:
    """A valid sample as it was made: the parts are known without parsing."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: str

    @property
    def text(self) -> str:
        if not self.labels:
            return f"{self.name} {self.value}"
        inside = ",".join(f'{name}="{escape(value)}"' for name, value in self.labels)
        return f"{self.name}{{{inside}}} {self.value}"


@st.composite
def rows(draw: st.DrawFn, *, attributed: bool = True) -> Row:
    labels: dict[str, str] = {}
    if draw(st.integers(0, 9)):
        labels[draw(st.sampled_from(("UUID", "UUID", "UUID", "uuid", "gpu_uuid")))] = draw(st.sampled_from(UUIDS))
    for name in draw(st.lists(LABEL_NAMES, max_size=3)):
        labels[name] = draw(st.one_of(st.sampled_from(("0", "1", "")), ODD_TEXT))
    if attributed and not draw(st.integers(0, 3)):
        for name in draw(st.lists(OWNER_LABELS, max_size=4)):
            labels[name] = draw(st.sampled_from(("", "a", "b", 'q"\\')))
    return Row(draw(METRIC_NAMES), tuple(labels.items()), draw(VALUES))


@st.composite
def broken_lines(draw: st.DrawFn) -> bytes:
    """A valid line that something happened to, or noise."""
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return draw(st.binary(max_size=30)).replace(b"\n", b"")
    row = draw(rows())
    if kind == 1:
        return Row(row.name, row.labels, draw(BAD_VALUES)).text.encode("utf-8", "replace")
    text = row.text.encode()
    if kind == 2 and row.labels:
        return text.replace(b"}", b',%b="again"}' % row.labels[0][0].encode(), 1)
    if kind == 3 and row.labels:
        return text.replace(b"{", draw(st.sampled_from((b'{__x="1",', b'{__name__="a",', b'{__name__="a",__="",'))), 1)
    line = bytearray(text)
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(line)))
        if draw(st.booleans()):
            del line[position : position + 1]
        else:
            line[position:position] = draw(
                st.sampled_from((b'"', b"\\", b"{", b"}", b",", b" ", b"\t", b"\0", b"\xff", b"=", b"#", b"\r", b"1"))
            )
    return bytes(line).replace(b"\n", b"")


@st.composite
def decorated(draw: st.DrawFn) -> bytes:
    """A valid sample written in an unusual way."""
    text = draw(rows()).text.encode()
    return draw(
        st.sampled_from(
            (
                b"  " + text,
                text + b" ",
                text + b" 1700000000000",
                text + b"\t17 ",
                text + b' # {trace_id="x"} 0.5',
                text + b' 17 # {trace_id="x"} 0.5 1',
                text + b"\r",
                text.replace(b"} ", b"}", 1),
                text.replace(b"{", b" { ", 1),
                text.replace(b"}", b",}", 1),
                text.replace(b"=", b" = ", 1),
                text + b" -5",
                text + b" 99999999999999999999",
                text + b" 1 2",
            )
        )
    )


@st.composite
def comments(draw: st.DrawFn) -> bytes:
    name = draw(st.one_of(METRIC_NAMES, st.sampled_from(("9x", "föö", "a{"))))
    kind = draw(
        st.sampled_from(("gauge", "counter", "summary", "histogram", "untyped", "Gauge", "gauge ", " gauge", "x", ""))
    )
    text = draw(
        st.one_of(st.sampled_from(("Some help.", "Other help.", "", "a\\nb", "a\\\\b", "a\\b", " x ")), ODD_TEXT)
    )
    return draw(
        st.sampled_from(
            (
                f"# TYPE {name} {kind}",
                f"# HELP {name} {text}",
                f"#HELP {name} {text}",
                f"#\tTYPE\t{name}\t{kind}",
                f"# {text}",
                f" # HELP {name}",
                "# TYPE",
                "#",
                "",
                " \t",
                "# EOF",
            )
        )
    ).encode("utf-8", "replace")


def _joined(lines: list[bytes], newline: bytes, *, ended: bool) -> bytes:
    return newline.join(lines) + (newline if ended and lines else b"")


pages = st.builds(
    _joined,
    st.lists(
        st.one_of(rows().map(lambda row: row.text.encode()), broken_lines(), decorated(), comments()), max_size=14
    ),
    st.sampled_from((b"\n", b"\n", b"\n", b"\r\n")),
    ended=st.booleans(),
)


@st.composite
def tidy_pages(draw: st.DrawFn) -> bytes:
    """What dcgm-exporter writes: metadata, then the family's samples, nothing odd but in values and label values."""
    lines = []
    for number in range(draw(st.integers(1, 3))):
        lines.append(f"# HELP family_{number} Some help.\n# TYPE family_{number} gauge\n")
        for row in draw(st.lists(rows(attributed=False), min_size=1, max_size=4)):
            inside = "".join(f',{name}="{text}"' for name, text in row.labels if text.isalnum() and name != "UUID")
            gpu = draw(st.sampled_from(UUIDS))
            lines.append(f'family_{number}{{UUID="{gpu}",n="{len(lines)}"{inside}}} {row.value}\n')
    return "".join(lines).encode()


policies = st.builds(
    LabelPolicy,
    names=st.sampled_from(
        (
            ("pod", "namespace", "container"),
            ("pod_name", "pod_namespace", "container_name"),
            ("x", "y", "z"),
        )
    ),
    incoming_wins=st.booleans(),
    idle_labels=st.booleans(),
    sharing=st.sampled_from(("copy", "split", "device")),
) | st.builds(
    LabelPolicy,
    names_owners=st.just(False),
    incoming_wins=st.booleans(),
    idle_labels=st.booleans(),
    sharing=st.sampled_from(("copy", "device")),
    has_claims=st.booleans(),
)


@st.composite
def owner_states(draw: st.DrawFn) -> Owners:
    """Whole GPUs, shares, MIG ids and ids that say nothing, in containers with ordinary and odd names.

    A pod has a name: an answer of List is read without pods that have none.
    """
    names = st.one_of(st.sampled_from(("a", "b", "train-0")), ODD_TEXT)
    ids = st.one_of(
        st.sampled_from(UUIDS),
        st.builds(lambda uuid, share: f"{uuid}::{share}", st.sampled_from(UUIDS), st.integers(0, 3)),
        st.sampled_from((UUIDS[0][4:], "MIG-x", "nvidia9", "")),
    )
    owners = st.builds(Owner, namespace=names, pod=names.filter(bool), container=names)
    assignments = st.builds(Assignment, owner=owners, resource=st.just("nvidia.com/gpu"), device_id=ids)
    return build_owners(draw(st.lists(assignments, max_size=6)))


def attribution_of(owners: Owners, policy: LabelPolicy, book: CounterBook | None = None) -> Attribution:
    return Attribution(owners, policy, book=book)


def with_other_values(body: bytes, seed: int) -> bytes:
    """The same page a scrape later: the last word of most lines has become another number, and some are no numbers."""
    numbers = random.Random(seed)
    lines = []
    for line in body.split(b"\n"):
        head, blank, _ = line.rpartition(b" ")
        number = f"{numbers.random() * 1000:.3f}".encode()
        moved = head + blank + number
        odd = numbers.choice((head + blank + numbers.choice(ODD_WORDS), number, b"nan", line + b" ", line))
        changes = blank and not line.startswith(b"#")
        lines.append((odd if numbers.random() < 0.1 else moved) if changes else line)
    return b"\n".join(lines)

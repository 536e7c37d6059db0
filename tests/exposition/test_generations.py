"""The generation of DCGM that a page is of: pages of each, made and captured, and pages that do not show it."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dcgm.dictionary import PREFIX, dictionary
from exporter.exposition.generations import generation_of
from exporter.exposition.units import PERCENT, RATIO
from exporter.model.page_generation import BOTH, NEWER, OLDER, SHELL, PageGeneration
from exporter.model.slices import at_once
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.dcgm_pages import COUNTERS, GENERATIONS
from tests.support.places import DATA
from tests.support.simulated import World

BOOK = dictionary()
PAGES = DATA / "pages"
UP_TO_4_5 = PageGeneration(first="3.3.9", last="4.5.3", names=OLDER)
# the pages of tests/data, and what dcgm-exporter wrote them
OF_PAGES = {
    "1": PageGeneration(names=SHELL),
    "3": UP_TO_4_5,
    "60-families": UP_TO_4_5,
    "attributed": UP_TO_4_5,
    "links": UP_TO_4_5,
    "mig": UP_TO_4_5,
    "virtual": UP_TO_4_5,
    "4.8": PageGeneration(first="4.6.0", last="4.7.0", names=OLDER),
    "4.9": PageGeneration(first="4.7.0", last="4.7.0", names=NEWER),
}


# lines as people have posted them: dcgm-exporter's own README (2.x), and a node with DCGM 4.5
POSTED = {
    'DCGM_FI_DEV_MEMORY_TEMP{gpu="0", UUID="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"} 9223372036854775794\n': (
        "3.3.9",
        "4.7.0",
    ),
    'DCGM_FI_DEV_POWER_USAGE{gpu="6",UUID="GPU-6",pci_bus_id="00000000:B9:00.0",device="nvidia6",modelName="NVIDIA'
    ' H100 80GB HBM3",Hostname="node-1",DCGM_FI_DRIVER_VERSION="580.105.08"} 112.670000\n': ("3.3.9", "4.5.3"),
}


def recognised(body: bytes) -> PageGeneration:
    return at_once(generation_of(body))


def line(name: str, value: str = "1", host: str = 'hostname="a",') -> str:
    return f'{name}{{gpu="0",UUID="GPU-0",{host}modelName="x"}} {value}\n'


def page_of(*lines: str) -> bytes:
    return "".join(lines).encode()


# issue 26, part 5
@pytest.mark.parametrize("path", sorted(PAGES.glob("*.prom")), ids=lambda path: path.stem)
def test_a_page_of_each_generation_is_recognised(path: Path) -> None:
    assert recognised(path.read_bytes()) == OF_PAGES[path.stem]


# issue 26, part 5
@pytest.mark.parametrize("counters", COUNTERS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_simulated_page_is_recognised(generation: str, counters: str) -> None:
    page = SimulatedDcgm(World(gpus=2, mig=1, seed=1), generation=generation, counters=counters).page()
    expected = OF_PAGES[generation]
    seen = recognised(page.encode())
    assert (seen.last, seen.names, seen.contradicts) == (expected.last, expected.names, False)
    # the shipped file has names that came with DCGM 4.0
    assert seen.first in {expected.first, "4.0.0"}


@pytest.mark.parametrize("text", POSTED)
def test_a_posted_page_is_recognised(text: str) -> None:
    page = recognised(text.encode())
    assert (page.first, page.last) == POSTED[text]


# issue 26, part 5
@pytest.mark.parametrize("generation", [version for version in BOOK.generations if version >= "4.6"])
def test_a_page_with_every_name_of_a_generation_is_of_it(generation: str) -> None:
    names = sorted(PREFIX + name for name in BOOK.all_names(generation))
    value = {RATIO.decode(): "0.87" if generation == "4.7.0" else "87"}
    page = recognised(page_of(*(line(name, value.get(name, "1")) for name in names)))
    assert page.names == BOTH
    assert not page.contradicts
    # 4.6.0 has no name that 4.6.1 lacks
    assert page.first == generation
    assert page.last == ("4.7.0" if generation == "4.7.0" else "4.6.1")


# issue 26, part 5
@given(st.randoms(use_true_random=False), st.sampled_from(BOOK.generations))
def test_some_names_of_a_generation_never_exclude_it(pick: random.Random, generation: str) -> None:
    names = sorted(BOOK.all_names(generation).keys() - {"DEV_GPU_UTIL_RATIO"})
    host = 'hostname="a",' if generation >= "4.6" else 'Hostname="a",'
    page = recognised(page_of(*(line(PREFIX + name, host=host) for name in pick.sample(names, 12))))
    place = BOOK.generations.index
    assert place(page.first) <= place(generation) <= place(page.last)
    assert not page.contradicts


# issue 26, part 5: DCGM 4.6's second names
@pytest.mark.parametrize(
    ("values", "last"),
    [(["87", "0"], "4.6.1"), (["0.87", "0"], "4.7.0"), (["1", "0"], "4.7.0"), (["87", "0.5"], "4.7.0")],
)
def test_a_page_of_second_names_is_of_4_6_if_their_values_have_its_form(values: list[str], last: str) -> None:
    name = RATIO.decode()
    page = recognised(page_of(line("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "33"), *(line(name, value) for value in values)))
    assert (page.first, page.last, page.names) == ("4.6.0", last, NEWER)


# issue 26, part 5
@pytest.mark.parametrize(
    ("lines", "first", "last"),
    [
        ([line("DCGM_FI_DEV_FB_USED", "1", 'Hostname="a",')], "3.3.9", "4.5.3"),
        ([line("DCGM_FI_DEV_FB_USED", "4.3e+09", "")], "4.6.0", "4.7.0"),
        ([line("DCGM_FI_DEV_POWER_USAGE", "70.500000", "")], "3.3.9", "4.5.3"),
        ([line("DCGM_FI_DEV_FB_USED", "1", "")], "3.3.9", "4.7.0"),
        ([line("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "1", 'Hostname="a",')], "4.0.0", "4.5.3"),
        ([line("DCGM_FI_DEV_FB_USED", "1", ""), line("DCGM_EXP_XID_ERRORS_TOTAL", "1", "")], "4.6.0", "4.7.0"),
        ([line("DCGM_FI_DEV_SM_CLOCK_HERTZ", "1.98e+09")], "4.6.1", "4.7.0"),
        ([line("DCGM_FI_DEV_FB_USED_BYTES", "0")], "4.7.0", "4.7.0"),
    ],
)
def test_names_labels_and_values_each_tell_a_part(lines: list[str], first: str, last: str) -> None:
    page = recognised(page_of(*lines))
    assert (page.first, page.last, page.contradicts) == (first, last, False)


# issue 26, part 5
def test_a_name_alone_shows_all_generations_that_have_it() -> None:
    names_of = [BOOK.all_names(generation).keys() - {"DEV_GPU_UTIL_RATIO"} for generation in BOOK.generations]
    # one name of each span of generations
    name_of = {
        tuple(generation for generation, names in zip(BOOK.generations, names_of, strict=True) if name in names): name
        for name in sorted(set().union(*names_of))
    }
    assert len(name_of) > 3
    for having, name in name_of.items():
        page = recognised(page_of(f'{PREFIX}{name}{{gpu="0"}} 1\n'))
        assert (page.first, page.last, page.contradicts) == (having[0], having[-1], False)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"dcgm_gpu_temp 1\n", SHELL),
        (b"# TYPE dcgm_gpu_temp gauge\n", SHELL),
        (b"dcgm_gpu_temp 1\nDCGM_FI_DEV_GPU_TEMP 1\n", OLDER),
        (b"DCGM_FI_DEV_GPU_TEMP 1\n", OLDER),
        (b"DCGM_FI_DEV_GPU_TEMP_CELSIUS 1\n", NEWER),
        (b"DCGM_FI_DEV_GPU_TEMP 1\nDCGM_FI_DEV_GPU_TEMP_CELSIUS 1\n", BOTH),
        # a name that stayed, and one of another field since
        (b"DCGM_FI_CUDA_DRIVER_VERSION 1\n", ""),
        # a field that DCGM did not have before
        (b"DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY 1\n", ""),
        (b"DCGM_FI_DEV_FB_USED 1\n", OLDER),
        (b"DCGM_FI_DEV_FB_USED_BYTES 1\n", NEWER),
    ],
)
def test_a_name_tells_whose_names_a_page_has(body: bytes, names: str) -> None:
    assert recognised(body).names == names


def test_names_that_no_generation_has_together_contradict_each_other() -> None:
    page = recognised(page_of(line("DCGM_FI_DEV_NVSWITCH_LINK_DEVICE_UUID"), line("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")))
    assert (page.first, page.last, page.contradicts) == ("4.0.0", "3.3.9", True)


def test_a_label_tells_more_than_the_form_of_values() -> None:
    for host, value, expected in (
        ('Hostname="a",', "4.3e+09", ("3.3.9", "4.5.3")),
        ('hostname="a",', "70.500000", ("4.6.0", "4.7.0")),
    ):
        page = recognised(page_of(line("DCGM_FI_DEV_FB_USED", value, host)))
        assert (page.first, page.last, page.contradicts) == (*expected, False)


def test_all_of_a_long_page_counts_and_is_looked_at_in_slices() -> None:
    lines = [line("DCGM_FI_DEV_FB_USED")] * 8_000
    assert at_once(generation_of(page_of(*lines))).last == "4.7.0"
    body = page_of(*lines, line("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "1.500000", ""))
    assert (recognised(body).first, recognised(body).last) == ("4.6.0", "4.7.0")
    work = generation_of(body)
    # after each 128 KiB, and twice for the dictionary
    assert sum(1 for _ in iter(lambda: next(work, "done"), "done")) == len(body) // (128 * 1024) + 1 + 2


def test_a_page_of_several_exporters_contradicts_itself() -> None:
    page = recognised(page_of(line("DCGM_FI_DEV_FB_USED_BYTES", host='Hostname="a",')))
    assert page.contradicts
    assert "several" in page.says()


@pytest.mark.parametrize("body", [b"", b"up 1\n", b"DCGM_FI_DEV_NO_SUCH_FIELD 1\n", b"\xff\n", b"DCGM_"])
def test_of_another_page_nothing_is_known(body: bytes) -> None:
    assert recognised(body) == PageGeneration()
    assert recognised(body).says() == ""


def test_the_name_that_is_settled_is_one_that_the_dictionary_has() -> None:
    field = BOOK.entries[203]
    assert [PREFIX + name.text for name in field.names] == [PERCENT.decode(), RATIO.decode()]
    assert re.fullmatch(r"4\.6\..*", field.names[1].last)

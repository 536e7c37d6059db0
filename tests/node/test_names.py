"""--families.names: a page of one generation of DCGM goes out as the other writes it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import cycle, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.join import owners_of
from exporter.accounts.observation import ObservationReader
from exporter.dividing.sharing import CounterBook
from exporter.exposition.join import Joiner
from exporter.exposition.lines import MetadataLine, SampleLine, read_line
from exporter.exposition.page_reader import BLOCK_BYTES
from exporter.exposition.renaming import Renaming
from exporter.model.devices import Owners
from exporter.model.pages import JoinedPage, Page
from exporter.model.slices import at_once
from exporter.node.policies import renaming_to
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.dcgm_pages import go_g
from tests.support.simulated import World

GENERATIONS = ("4.8", "4.9")
SETTINGS = ("as-is", *GENERATIONS, "both")
STEP_NS = 30 * 10**9
Samples = Mapping[tuple[bytes, frozenset[tuple[bytes, bytes]]], bytes]
DRIVERS = {b"DCGM_FI_DRIVER_VERSION", b"DCGM_FI_SYSTEM_DRIVER_VERSION"}
renaming_made_once = cache(renaming_to)  # making one takes as long as joining a page


def samples_of(body: bytes) -> Samples:
    """The samples by name and labels, of which none is there twice, with their values as they are written."""
    lines = [line for line in map(read_line, body.splitlines()) if isinstance(line, SampleLine)]
    samples = {(line.name, frozenset(line.labels)): line.value for line in lines}
    assert len(samples) == len(lines)
    return samples


def metadata_of(body: bytes) -> dict[tuple[bytes, bytes], bytes]:
    lines = [line for line in map(read_line, body.splitlines()) if isinstance(line, MetadataLine)]
    metadata = {(line.keyword, line.name): line.text for line in lines}
    assert len(metadata) == len(lines)
    return metadata


class Exporter:
    """What goes out for the pages of some upstreams, read after read."""

    def __init__(
        self, names: str, sharing: str = "copy", owners: Owners | None = None, renaming: Renaming | None = None
    ) -> None:
        policy = LabelPolicy(sharing=sharing)
        self._book, self._read = CounterBook(), 0.0
        self._attribution = Attribution(owners or Owners(), policy, book=self._book)
        self.joiner = Joiner(
            read_subject=policy.read_subject,
            is_owner_label=policy.is_owner_label,
            wanted=lambda _: True,
            renaming=renaming or renaming_made_once(names),
        )

    def page(self, *bodies: str) -> JoinedPage:
        self._read += 1
        read = [Page(source="a", body=b"", read_at_seconds=self._read, moment=self._read)]
        self._book.turn_to(read)
        joined = self.joiner.join([body.encode() for body in bodies], self._attribution)
        assert joined.size == len(joined.body)
        return joined


class Node:
    """A node of 4 GPUs, of which one is shared and one cut, and its page as each generation writes it."""

    def __init__(self, counters: str = "default") -> None:
        self._now_ns = 10**12
        self.world = World(gpus=4, shared=1, mig=1, seed=3, clock=lambda: self._now_ns)
        self._dcgm = {
            generation: SimulatedDcgm(self.world, generation=generation, counters=counters)
            for generation in GENERATIONS
        }

    def pages(self) -> dict[str, str]:
        self._now_ns += STEP_NS
        return {generation: dcgm.page() for generation, dcgm in self._dcgm.items()}


@pytest.mark.parametrize(("sharing", "counters"), [("copy", "full"), ("split", "full"), ("device", "default")])
def test_each_generation_as_the_other_is_the_others_page(sharing: str, counters: str) -> None:
    node = Node(counters)
    owners = owners_of(node.world)
    out = {(came, names): Exporter(names, sharing, owners) for came in GENERATIONS for names in SETTINGS}
    for _ in range(2):
        pages = node.pages()
        joined = {(came, names): exporter.page(pages[came]) for (came, names), exporter in out.items()}
        assert [page.rejected for page in joined.values()] == [{}] * len(joined)
        samples = {key: samples_of(page.body) for key, page in joined.items()}
        for came, names in product(GENERATIONS, GENERATIONS):
            assert samples[came, names] == samples[names, "as-is"]
            assert joined[came, names].subjects == joined[names, "as-is"].subjects
        for came in GENERATIONS:
            assert samples[came, "both"] == union(samples["4.8", "as-is"], samples["4.9", "as-is"])


def union(older: Samples, newer: Samples) -> Samples:
    """The samples of both, each with the labels of both; where names and units are the same they are one."""
    drivers = {label for _, labels in (*older, *newer) for label in labels if label[0] in DRIVERS}
    return {(name, labels | drivers): value for (name, labels), value in {**older, **newer}.items()}


@pytest.mark.parametrize("sharing", ["copy", "split"])
def test_names_types_and_help_texts_do_not_depend_on_what_came(sharing: str) -> None:
    pages = Node("full").pages()
    for names in ("4.8", "4.9", "both"):
        one, other = (metadata_of(Exporter(names, sharing).page(pages[came]).body) for came in GENERATIONS)
        assert one == other
        assert {text for (keyword, _), text in one.items() if keyword == b"TYPE"} == {b"gauge", b"counter"}
    newer = metadata_of(Exporter("4.9").page(pages["4.8"]).body)
    assert newer[b"HELP", b"DCGM_FI_DEV_SM_CLOCK_HERTZ"] == b"Clock of the multiprocessors (in Hz)."
    assert newer[b"TYPE", b"DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"] == b"counter"


@pytest.mark.parametrize(("names", "sharing"), [("4.8", "split"), ("4.9", "copy"), ("both", "split")])
def test_two_upstreams_of_two_generations_are_one_series_of_each_gpu(names: str, sharing: str) -> None:
    node = Node()
    pages, owners = node.pages(), owners_of(node.world)
    for first, second in (GENERATIONS, GENERATIONS[::-1]):
        alone = Exporter(names, sharing, owners).page(pages[first])
        joined = Exporter(names, sharing, owners).page(pages[first], pages[second])
        assert samples_of(joined.body) == samples_of(alone.body)
        assert metadata_of(joined.body) == metadata_of(alone.body)
        assert set(joined.rejected) == {"duplicate"}


@pytest.mark.parametrize("names", SETTINGS)
def test_what_is_in_no_table_stays(names: str) -> None:
    page = (
        "# a comment\n# HELP DCGM_FI_DEV_FUTURE Something new (in MHz).\n# TYPE DCGM_FI_DEV_FUTURE gauge\n"
        'DCGM_FI_DEV_FUTURE{gpu="0",UUID="GPU-1",Hostname="n",DCGM_FI_DRIVER_VERSION="580"} 57.0\n'
        'dcgm_gpu_temp{gpu="0",uuid="GPU-1"} 33\nup 1\n'
    )
    body = Exporter(names).page(page).body.decode()
    assert (
        body.replace(',pod="",namespace="",container=""', "").replace('{pod="",namespace="",container=""}', "") == page
    )


@pytest.mark.parametrize("counters", ["default", "full"])
def test_accounts_read_the_same_with_each_setting(counters: str) -> None:
    pages = Node(counters).pages()
    readings = {
        (came, names): at_once(ObservationReader().read(Exporter(names).page(pages[came])))
        for came, names in product(GENERATIONS, SETTINGS)
    }
    expected = readings["4.8", "as-is"]
    assert len(expected) == 4
    assert [key for key, samples in readings.items() if samples != expected] == []


def test_a_label_whose_new_name_is_taken_goes() -> None:
    page = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",hostname="a",Hostname="b"} 33\n'
    body = Exporter("4.9").page(page).body
    assert body.startswith(b'DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu="0",UUID="GPU-1",hostname="a",pod=""')


@pytest.mark.parametrize("came", ["57 1700000000000", "  57", "57 # {} 1", "NaN", "9223372036854775794"])
def test_a_value_in_an_unusual_form_is_in_the_new_unit_too(came: str) -> None:
    page = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1"}} {came}\n'
    expected = re.sub(r" # .*", "", re.sub(r"\b57\b", "0.57", came))
    head = 'DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",UUID="GPU-1",pod="",namespace="",container=""} '
    assert Exporter("4.9").page(page).body.decode() == f"{head}{expected}\n"


def test_families_are_chosen_by_the_names_that_go_out() -> None:
    pages, policy = Node().pages(), LabelPolicy()
    for came in GENERATIONS:
        joiner = Joiner(
            read_subject=policy.read_subject,
            is_owner_label=policy.is_owner_label,
            wanted=lambda name: name in {"DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_GPU_TEMP"},
            renaming=renaming_to("both"),
        )
        body = joiner.join([pages[came].encode()], Attribution(Owners(), policy)).body
        assert {name for name, _ in samples_of(body)} == {b"DCGM_FI_DEV_FB_USED_BYTES", b"DCGM_FI_DEV_GPU_TEMP"}


@pytest.mark.parametrize(("names", "sharing"), [("4.8", "split"), ("4.9", "copy"), ("both", "split")])
def test_a_joiner_over_its_life_gives_what_a_fresh_one_gives(names: str, sharing: str) -> None:
    page = Node().pages()["4.8"]
    lines = page.splitlines(keepends=True)
    large = page + "".join(line.replace("GPU-", f"GPU-{number}") for number in range(6) for line in lines)
    assert len(large) > 4 * BLOCK_BYTES
    joiner = Exporter(names, sharing, renaming=renaming_to(names)).joiner
    for body in (page, "".join(lines[:-40]), large, "".join(lines[20:]) + large, page, page.replace(" 0\n", " 1\n")):
        policy = LabelPolicy(sharing=sharing)
        attribution = Attribution(Owners(), policy)
        joined = joiner.join([body.encode()], attribution)
        fresh = Exporter(names, sharing).joiner.join([body.encode()], Attribution(Owners(), policy))
        # where lines begin to go out a second time depends on the blocks that are known
        assert sorted(joined.body.splitlines()) == sorted(fresh.body.splitlines())
        assert names == "both" or joined.body == fresh.body
        assert joined.size == len(joined.body)


# in MiB or KiB these are the 2**47 or 2**63 bytes that DCGM writes for no value, whatever the settings
NO_VALUES = {2**27, 2**37, 2**43}
VALUES = st.one_of(
    st.integers(0, 100),
    st.integers(0, 10**6),
    st.integers(0, 10**13).filter(lambda number: number not in NO_VALUES),
    st.integers(0, 10**8).map(lambda number: number / 1000),
)


@settings(max_examples=8)
@given(values=st.lists(VALUES, min_size=10, max_size=30), came=st.sampled_from(GENERATIONS))
def test_a_random_page_there_and_back_is_the_same(values: Sequence[float], came: str) -> None:
    page = with_values(PAGES[came], values)
    other = "4.9" if came == "4.8" else "4.8"
    there = Exporter(other).page(page).body.decode()
    back = samples_of(Exporter(came).page(there).body)
    as_it_came = samples_of(Exporter("as-is").page(page).body)
    assert back.keys() == as_it_came.keys()
    for key, value in as_it_came.items():
        # bytes as MiB, or as a thousand KiB, have as many decimals as DCGM prints
        is_exact = came == "4.8" or not {b"FB", b"THROUGHPUT"} & {*key[0].split(b"_")}
        assert back[key] == value if is_exact else abs(float(back[key]) - float(value)) <= 1, key


def with_values(page: str, values: Iterable[float]) -> str:
    following = cycle(values)
    return re.sub(r" \S+$", lambda _: f" {go_g(float(next(following)))}", page, flags=re.MULTILINE)


def _pages() -> dict[str, str]:
    world = World(gpus=2, mig=1, seed=5, clock=lambda: 10**12)
    pages = {generation: SimulatedDcgm(world, generation=generation).page() for generation in GENERATIONS}
    # their metadata stays away: with_values() looks at each line's last word
    return {
        came: "".join(line for line in page.splitlines(keepends=True) if line[0] != "#") for came, page in pages.items()
    }


PAGES = _pages()

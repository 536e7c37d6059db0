"""Which pages take the quick way, and that no way makes a difference."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import page_reader
from exporter.exposition.cuts import Converted, Cuts, runs_of
from exporter.exposition.families import render_labels
from exporter.exposition.join import Joiner
from exporter.exposition.labelled_block import LaidOutBlock
from exporter.exposition.plain_block import PlainBlock
from exporter.exposition.renaming import Texts
from exporter.model.devices import Owners
from exporter.model.pages import Cell
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.strategies import attribution_of, owner_states, tidy_pages, with_other_values

POLICY = LabelPolicy()
NOBODY = Attribution(Owners(), POLICY)
HEAD = b"# HELP a Some help.\n# TYPE a gauge\n"
ONE = b'a{UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} 1\n'


def joiner_of(policy: LabelPolicy = POLICY) -> Joiner:
    return Joiner(
        read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda name: name != "unwanted"
    )


@pytest.mark.parametrize(
    ("page", "form"),
    [
        (ONE, PlainBlock),
        (HEAD + ONE, PlainBlock),
        (HEAD + ONE + b"# the end\n\n", PlainBlock),
        (HEAD + b'a{x="NaN"} NaN\na{x="i"} +Inf\n', PlainBlock),
        # a brace that no value follows; issue 15, line 28
        (b"# HELP a as in {this}\n" + ONE, PlainBlock),
        (b'a{x="{}"} 1\n', PlainBlock),
        # lines whose ends alone are mended
        (ONE[:-1], PlainBlock),
        (ONE.replace(b"\n", b"\r\n"), PlainBlock),
        # what does not go out as it came
        (HEAD, LaidOutBlock),
        (HEAD + ONE + HEAD, LaidOutBlock),
        (b"# TYPE a  Gauge\n" + ONE, LaidOutBlock),
        (ONE + ONE, LaidOutBlock),
        (b"a 1\n" + ONE, LaidOutBlock),
        (b"a{} 1\n", LaidOutBlock),
        (b'a{x="1",} 1\n', LaidOutBlock),
        (b'a{x="1"}  1\n', LaidOutBlock),
        (b'a{x="1"} 1 5\n', LaidOutBlock),
        (b'a{x="1",pod=""} 1\n', LaidOutBlock),
        (b'a{x="1"} N/A\n' + ONE, LaidOutBlock),
        (b'unwanted{x="1"} 1\n' + ONE, LaidOutBlock),
        (b'pod_gpu_exporter_source_up{source="kubelet"} 1\n' + ONE, LaidOutBlock),
    ],
)
def test_a_page_takes_the_quick_way_where_it_goes_out_as_it_came(page: bytes, form: type[object]) -> None:
    joiner = joiner_of()
    for value in (b"1", b"2.5", b"-3e7"):
        now = page.replace(b"} 1", b"} " + value)
        assert joiner.join([now], NOBODY).body == joiner_of().join([now], NOBODY).body
        assert joiner._page
        assert [type(block) for block in joiner._page.shape.blocks] == [form]


def percent() -> Texts:
    """The texts of ratios as percent."""
    return Texts(lambda ratio: b"%d" % round(float(ratio) * 100))


# issue 27, part 3
@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((b"1", b"0.5", b"2", b"0.25", b"3"), [b"1", b"50", b"2", b"25", b"3"]),
        ((b"x", b"0.5", b"2", b"0.25", b"3"), None),
        ((b"1", b"0.5", b"x", b"0.25", b"3"), None),
        ((b"1", b"0.5", b"2", b"0.25", b"x"), None),
        ((b"1", b"x", b"2", b"0.25", b"3"), None),
        ((b"1", b"0.5", b"2", b"x", b"3"), None),
    ],
)
def test_no_value_goes_unchecked_beside_values_that_become_others(
    values: tuple[bytes, ...], texts: list[bytes] | None
) -> None:
    heads = [b"a ", b"b ", b"c ", b"d ", b"e "]
    texts_of = percent()
    cuts = Cuts(heads, size=10, changes=[Converted(1, 2, texts_of), Converted(3, 4, texts_of)])
    # what became another text at the scrape before is not checked again, and what is beside it is
    assert cuts.values(b"a 1\nb 0.5\nc 2\nd 0.25\ne 3\n") == [b"1", b"50", b"2", b"25", b"3"]
    body = b"".join(b"%b%b\n" % line for line in zip(heads, values, strict=True))
    assert cuts.values(body) == texts


# issue 27, part 3
def test_neighbours_with_the_same_texts_are_one_run() -> None:
    one, other = percent(), percent()
    assert runs_of([(0, one), (1, one), (3, one), (4, other), (5, other)]) == [(0, 2, one), (3, 4, one), (4, 6, other)]
    assert runs_of([]) == []


EDITS = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.sampled_from((b"", b"}", b"} 5", b"\n", b" ", b"{", b"1", b".", b'"', b"\r", b"} 5}", b'a{x="1"} 2\n')),
        st.integers(0, 12),
    ),
    max_size=3,
)


def edited(page: bytes, edits: list[tuple[int, bytes, int]]) -> bytes:
    for position, new, dropped in edits:
        start = position % (len(page) + 1)
        page = page[:start] + new + page[start + dropped :]
    return page


@settings(max_examples=75, deadline=None)
@given(page=tidy_pages(), edits=EDITS, seed=st.integers(0, 99), block_bytes=st.sampled_from((1, 60, 200, 64 * 1024)))
def test_a_joiner_that_knows_another_page_gives_what_a_fresh_one_gives(
    page: bytes, edits: list[tuple[int, bytes, int]], seed: int, block_bytes: int
) -> None:
    now = edited(with_other_values(page, seed), edits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_reader, "BLOCK_BYTES", block_bytes)
        knowing = joiner_of()
        knowing.join([page], NOBODY)
        joined = knowing.join([now], NOBODY)
        fresh = joiner_of().join([now], NOBODY)
        assert joined.body == fresh.body
        assert joined.rejected == fresh.rejected
        assert joined.subjects == fresh.subjects
        # and back: what was known of the series is known again
        assert knowing.join([page], NOBODY).body == joiner_of().join([page], NOBODY).body


@pytest.mark.parametrize(
    "now",
    [
        b'z{x="1"} 5\nb{x="1"} 6\n',
        b'a{x="1"] 5\nb{x="1"} 6\n',
        b'a{x="1"} 5\nb{x="1"} 6',
        b'a{x="1"} 5} 6\n',
        # the tail that is missing is as long as what comes too much
        b'a{x="1"} 5} 6\n}1234567',
        b'a{x="1"} 5\nb{x="1"} 6\nc{x="1"} 7\n',
        b'a{x="1"} 5\n',
        b'a{x="1"}  5\nb{x="1"} 6\n',
        b'a{x="1"} 5 \nb{x="1"} 6\n',
        b'a{x="1"} 5 \nb{x="1"}6\n',
        b'a{x="1"} 5 6\nb{x="1"} \n',
        b"",
    ],
)
def test_a_page_that_is_nearly_the_known_one(now: bytes) -> None:
    knowing = joiner_of()
    knowing.join([b'a{x="1"} 5\nb{x="1"} 6\n'], NOBODY)
    assert knowing.join([now], NOBODY).body == joiner_of().join([now], NOBODY).body


@settings(max_examples=50, deadline=None)
@given(page=tidy_pages(), owners=st.tuples(owner_states(), owner_states()), seed=st.integers(0, 99))
def test_the_rows_taken_apart_are_those_of_the_page_that_goes_out(
    page: bytes, owners: tuple[Owners, Owners], seed: int
) -> None:
    joiner = joiner_of()
    for body, state in ((page, owners[0]), (with_other_values(page, seed), owners[0]), (page, owners[1])):
        joined = joiner.join([body], attribution_of(state, POLICY))
        lines = [line for line in joined.body.split(b"\n") if line and not line.startswith(b"#")]
        families = frozenset(line[: line.index(b"{")] for line in lines)
        cells: list[Cell] = list(joined.cells(families))
        assert len(cells) == len(lines) == joined.sample_count
        for cell, line in zip(cells, lines, strict=True):
            assert line.startswith(b'%b{UUID="%b",' % (cell.family, cell.subject.uuid.encode()))
            assert line.endswith(b",%b} %b" % (render_labels(cell.row.labels), cell.value))

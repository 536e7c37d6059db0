"""The names, units and labels with which a family goes out."""

import re
from collections.abc import Iterable, Mapping, Sequence

import pytest

from exporter.exposition import page_reader
from exporter.exposition.join import Joiner
from exporter.exposition.lines import MetadataLine
from exporter.exposition.plain_block import PlainBlock
from exporter.exposition.renaming import AS_IT_CAME, Renamed, Renaming, Texts
from exporter.model.devices import DeviceKey, Holder, Owners
from exporter.model.pages import JoinedPage
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution


def test_the_first_of_two_labels_that_get_one_name_stays() -> None:
    renamed = Renamed(b"new", b"", b"", labels={b"Hostname": (b"hostname",), b"gpu": (b"gpu", b"index")})
    labels = [(b"gpu", b"0"), (b"Hostname", b"n1"), (b"hostname", b"n2"), (b"index", b"7")]
    assert renamed.labels_of(labels) == [(b"gpu", b"0"), (b"index", b"0"), (b"hostname", b"n1")]


def test_type_and_help_stay_unless_there_are_new_ones() -> None:
    help_line, type_line = (
        MetadataLine(word, b"old", text, b"") for word, text in ((b"HELP", b"Use."), (b"TYPE", b"gauge"))
    )
    as_before, anew = Renamed(b"new", b"", b""), Renamed(b"new", b"counter", b"More.")
    assert [as_before.metadata(line).line for line in (help_line, type_line)] == [
        b"# HELP new Use.",
        b"# TYPE new gauge",
    ]
    assert [anew.metadata(line).line for line in (help_line, type_line)] == [b"# HELP new More.", b"# TYPE new counter"]


def test_a_value_is_converted_once_while_it_is_kept() -> None:
    asked: list[bytes] = []

    def convert(text: bytes) -> bytes:
        asked.append(text)
        return b"2" + text

    texts = Texts(convert)
    long = b"1" * 40 + b"\n"
    assert [texts[rest] for rest in (b"1\n", b"1\n", b"", long, long)] == [
        b"21\n",
        b"21\n",
        b"",
        b"2" + long,
        b"2" + long,
    ]
    assert asked == [b"1", long[:-1], long[:-1]]
    for number in range(2_048):
        assert texts[b"0%d\n" % number] == b"20%d\n" % number
    assert len(texts) == 1  # it forgets all when they are too many
    assert texts[b"1" * 39 + b"\n"]
    assert len(texts) == 2  # as long as a text may be that is kept


def test_a_renaming_knows_the_new_names_of_twins() -> None:
    assert Renaming({}, twins={b"old": Renamed(b"new", b"", b"")}).twin_names == {b"new"}
    assert AS_IT_CAME.twin_names == set()


POLICY = LabelPolicy(idle_labels=False)
HOLDERS = tuple(
    Holder(owner=Owner(namespace="ml", pod=pod, container="main"), resource="nvidia.com/gpu", shared=True)
    for pod in "ab"
)
NOBODY = Owners()
HELD = Owners(holders={DeviceKey(uuid="GPU-1"): HOLDERS[:1]})
SHARED = Owners(holders={DeviceKey(uuid="GPU-1"): HOLDERS})
HEAD = b"# HELP old Use.\n# TYPE old gauge\n"
OLD = b'old{UUID="GPU-1",host="n"} 5\nold{UUID="GPU-2",host="n"} 7\n'
OTHER = b'# TYPE other gauge\nother{UUID="GPU-1"} 1\n'
PAGES = (
    HEAD + OLD + OTHER,
    OTHER + HEAD + OLD,
    OLD,
    OTHER,
    # what has no labels, and what is mended, repeated or stamped with a time
    HEAD + OLD + b"old 3\n",
    HEAD + OLD + b'old{pod="x"} 3\n',
    HEAD + OLD + b'old{UUID="GPU-3"}  4 1700000000000\n' + OTHER,
    HEAD + HEAD + OLD + OLD + OTHER,
    HEAD + b'# HELP old Other.\nold{UUID="GPU-1",} 1\n# a comment\n\n' + OTHER,
    b'unwanted{UUID="GPU-1"} 1\n' + HEAD + OLD,
)


def name_of(line: bytes) -> bytes:
    words = line.split(b" ")
    return words[2] if line.startswith(b"# ") and len(words) > 3 else line.partition(b"{")[0].partition(b" ")[0]


def under(name: bytes, page: bytes, *, old: bytes = b"old") -> bytes:
    """The page's lines of the old name, as they would come under another name, in a unit a thousandth as large."""
    lines = [line for line in page.splitlines(keepends=True) if name_of(line) == old]
    value = re.compile(rb"(} +|^old )([0-9]+)")
    return b"".join(
        value.sub(rb"\1\g<2>000", line).replace(b"old", name, 1).replace(b"host=", b"node=").replace(b",}", b"}")
        for line in lines
    )


def renamed(page: bytes) -> bytes:
    return b"".join(under(b"new", line) or line for line in page.splitlines(keepends=True))


def joiner_of(renaming: Renaming = AS_IT_CAME) -> Joiner:
    return Joiner(
        read_subject=POLICY.read_subject,
        is_owner_label=POLICY.is_owner_label,
        wanted=lambda name: name != "unwanted",
        renaming=renaming,
    )


def new_name(name: bytes = b"new") -> Mapping[bytes, Renamed]:
    return {b"old": Renamed(name, b"", b"", Texts(lambda value: value + b"000"), {b"host": (b"node",)})}


def moments(page: bytes) -> Sequence[tuple[bytes, Attribution]]:
    """The same page, with other values, and for other owners; and as it was."""
    grown = re.sub(rb"} 5", b"} 50", page)
    nobody, held, shared = (Attribution(owners, POLICY) for owners in (NOBODY, HELD, SHARED))
    return (
        (page, nobody),
        (page, nobody),
        (grown, nobody),
        (page, held),
        (grown, held),
        (grown, shared),
        (page, shared),
        (page, held),
    )


def seen_of(joined: JoinedPage, names: Iterable[bytes]) -> object:
    families = frozenset(names)
    cells = [(cell.family, cell.subject, cell.row.labels, cell.value) for cell in joined.cells(families)]
    readings = [(series.name, series.subject, value) for series, value in joined.readings(families)]
    return cells, readings


@pytest.mark.parametrize("block_lines", [1, 512])
@pytest.mark.parametrize("page", PAGES)
def test_a_renamed_family_goes_out_as_if_it_had_come_so(
    monkeypatch: pytest.MonkeyPatch, page: bytes, block_lines: int
) -> None:
    monkeypatch.setattr(page_reader, "BLOCK_LINES", block_lines)
    knowing = joiner_of(Renaming(new_name()))
    for body, attribution in moments(page):
        joined = knowing.join([body], attribution)
        expected = joiner_of().join([renamed(body)], attribution)
        assert joined.body == expected.body
        assert joined.size == len(joined.body)
        assert joined.rejected == expected.rejected
        assert joined.sample_count == expected.sample_count
        for name in (b"old", b"new", b"other"):
            assert seen_of(joined, [name]) == seen_of(expected, [name])


@pytest.mark.parametrize("page", PAGES)
def test_a_familys_twin_goes_out_behind_it_and_only_scrapers_see_it(page: bytes) -> None:
    knowing = joiner_of(Renaming({}, twins=new_name()))
    for body, attribution in moments(page):
        joined = knowing.join([body], attribution)
        expected = joiner_of().join([body + under(b"new", body)], attribution)
        assert joined.body == expected.body
        assert joined.size == len(joined.body)
        assert joined.sample_count == expected.sample_count
        assert seen_of(joined, [b"old", b"new", b"other"]) == seen_of(expected, [b"old", b"other"])


def test_a_renamed_family_may_have_a_twin_under_a_third_name() -> None:
    page = HEAD + OLD + OTHER
    knowing = joiner_of(Renaming(new_name(), twins=new_name(b"third")))
    for body, attribution in moments(page):
        joined = knowing.join([body], attribution)
        assert joined.body == joiner_of().join([renamed(body) + under(b"third", body)], attribution).body
        assert joined.size == len(joined.body)


def test_a_twin_goes_out_with_the_page_of_its_own_upstream() -> None:
    one, other = HEAD + OLD + OTHER, OLD.replace(b"GPU-", b"GPU-x-") + b'more{UUID="GPU-1"} 1\n'
    knowing = joiner_of(Renaming({}, twins=new_name()))
    for attribution in (Attribution(NOBODY, POLICY), Attribution(HELD, POLICY)):
        for bodies in ([one, other], [other, one], [one]):
            joined = knowing.join(bodies, attribution)
            expected = joiner_of().join([body + under(b"new", body) for body in bodies], attribution)
            assert joined.body == expected.body


def test_a_page_with_renamed_families_alone_still_takes_the_quick_way() -> None:
    for renaming in (Renaming(new_name()), Renaming({}, twins=new_name())):
        joiner = joiner_of(renaming)
        joiner.join([HEAD + OLD + OTHER], Attribution(HELD, POLICY))
        assert joiner._page
        assert [type(block) for block in joiner._page.shape.blocks] == [PlainBlock]

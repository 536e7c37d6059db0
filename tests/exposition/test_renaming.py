"""The names, units and labels with which a family goes out."""

from exporter.exposition.lines import MetadataLine
from exporter.exposition.renaming import AS_IT_CAME, Renamed, Renaming, Texts


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


def test_a_renaming_knows_the_new_names_of_twins() -> None:
    assert Renaming({}, twins={b"old": Renamed(b"new", b"", b"")}).twin_names == {b"new"}
    assert AS_IT_CAME.twin_names == set()

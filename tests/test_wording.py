"""Texts from elsewhere are fit to show, and lists of names end with how many more there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.wording import and_listed, escaped, granted_amounts, listed, one_line


@given(st.text(), st.integers(2, 20))
def test_a_text_from_elsewhere_is_one_printable_line_of_bounded_length(text: str, most: int) -> None:
    for line in (one_line(text, most), escaped(text, most)):
        assert line.isprintable()
        assert len(line) <= most
    assert one_line(text).isprintable()
    assert escaped(text).isprintable()


@pytest.mark.parametrize(
    ("text", "most", "line", "exact"),
    [
        ("as it was", None, "as it was", "as it was"),
        (" a\n\tb\x1b[2J\u202ec ", None, "a b [2J c", r" a\n\tb\x1b[2J\u202ec "),
        ("0123456789 123", 12, "0123456789…", "0123456789 …"),
        # only the first characters of a long text are read, and it must not look whole
        ("quota:" + " " * 50 + "team-a", 12, "quota:…", "quota:     …"),
    ],
)
def test_what_cannot_be_printed_is_a_space_or_an_escape(text: str, most: int | None, line: str, exact: str) -> None:
    assert (one_line(text, most), escaped(text, most)) == (line, exact)


@pytest.mark.parametrize(
    ("names", "plain", "in_a_sentence", "of_reasons"),
    [
        ([], "", "", ""),
        (["a"], "a", "a", "a"),
        (["a", "b"], "a, b", "a and b", "a; b"),
        (["a", "b", "c"], "a, b, c", "a, b and c", "a; b; c"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more", "a, b, c and 2 more", "a; b; c; and 2 more"),
    ],
)
def test_names_are_listed_with_how_many_more_there_are(
    names: list[str], plain: str, in_a_sentence: str, of_reasons: str
) -> None:
    assert (listed(names, 3), and_listed(names, 3), listed(names, 3, "; ")) == (plain, in_a_sentence, of_reasons)


# issue 24, part 5
@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ((10_240, 45), ["10 GiB", "45 %"]),
        ((1_536, 0), ["1.5 GiB"]),
        ((512, None), ["512 MiB"]),
        ((None, None, 0.5), ["50 %"]),
        ((81_559, None, 1 / 3), ["79.6 GiB", "33.3 %"]),
        ((None, None, None), []),
    ],
)
def test_a_granted_part_in_words(amounts: tuple[float | None, ...], words: list[str]) -> None:
    assert granted_amounts(*amounts) == words

"""--families.names on every field of DCGM: there and back by each setting, nothing is lost, doubled or changed."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import cycle

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from exporter.dcgm.dictionary import PREFIX, dictionary
from exporter.dcgm.fields import FIELDS
from exporter.dcgm.generation_names import NEWER, OLDER, names_in, renamed
from tests.node.test_names import NO_VALUES, Exporter, metadata_of, samples_of
from tests.support.places import DATA

BOOK = dictionary()
DRIVER = "DCGM_FI_DRIVER_VERSION"  # a label wherever it is
SEEN_IN_4_6 = [
    tuple(PREFIX + name for name in line.split("\t"))
    for line in (DATA / "dcgm" / "names-4.6.tsv").read_text().splitlines()
    if not line.startswith("#")
]
ALIASES = [(older, newer) for older, newer in renamed() if older != DRIVER]
NAMES = {generation: names_in(generation) for generation in (OLDER, NEWER)}
# the oldest generation, and those in which many names came: each with the names that none before it has
WITH_NEW_NAMES = ("3.3.9", "4.0.0", "4.5.3", "4.6.0", "4.6.1", "4.7.0")
# a MiB of microunits: it is a whole number in each unit
WHOLE = 2**20 * 10**6
VALUES = st.one_of(
    st.decimals("0", "1e13", allow_nan=False, places=3).map(str),
    st.integers(0, 10**15).filter(lambda number: number not in NO_VALUES).map(str),
    st.sampled_from(["0", "1.98e+09", "57.000000", "4.3e-05", "NaN", "+Inf", "9223372036854775794"]),
)


def page_of(values: Mapping[str, str]) -> str:
    """A page with a family of each name, each with a sample."""
    return "".join(
        f"# HELP {name} Of {name} alone.\n# TYPE {name} counter\n"
        f'{name}{{gpu="0",UUID="GPU-0",hostname="a",own="{name}"}} {value}\n'
        for name, value in values.items()
    )


def out(names: str, page: str | bytes) -> bytes:
    """What goes out for a page. None of its lines is left out."""
    joined = Exporter(names).page(page if isinstance(page, str) else page.decode())
    assert joined.rejected == {}
    return joined.body


def families(body: bytes) -> set[str]:
    return {name.decode() for name, _ in samples_of(body)}


def values_of(body: bytes) -> Mapping[str, str]:
    """The values by the name with which each sample came."""
    return {dict(labels)[b"own"].decode(): value.decode() for (_, labels), value in samples_of(body).items()}


def numbers_of(body: bytes) -> Mapping[object, Decimal]:
    """The samples with their numbers, however these are written."""
    return {key: Decimal(value.decode()) for key, value in samples_of(body).items()}


def has_one_unit(name: str) -> bool:
    """Whether no setting changes the field's unit."""
    news = [names.get(name) for names in NAMES.values()]
    return all(new is None or new.times == new.per for new in news)


def test_the_aliases_are_those_of_dcgm_4_6s_header() -> None:
    assert len(SEEN_IN_4_6) == 304
    assert {*SEEN_IN_4_6} - {*ALIASES} == {(DRIVER, "DCGM_FI_SYSTEM_DRIVER_VERSION")}


# issue 26, Must show 4
@settings(max_examples=3, phases=[Phase.generate])
@given(values=st.lists(VALUES, min_size=3, max_size=11))
def test_every_alias_goes_there_and_comes_back(values: Sequence[str]) -> None:
    came = page_of(dict(zip([older for older, _ in ALIASES], cycle(values), strict=False)))
    as_it_came = out("as-is", came)
    older, there = out(OLDER, came), out(NEWER, came)
    back = out(OLDER, there)
    assert families(older) == families(as_it_came)
    assert samples_of(back).keys() == samples_of(older).keys() == samples_of(as_it_came).keys()
    assert metadata_of(back) == metadata_of(older)
    assert len(samples_of(there)) == len(samples_of(as_it_came))
    assert out(NEWER, older) == there
    in_between, at_last = values_of(there), values_of(back)
    for key, value in values_of(as_it_came).items():
        if has_one_unit(key):
            assert in_between[key] == at_last[key] == value
        elif Decimal(value).is_finite():
            assert Decimal(at_last[key]) == Decimal(value), key


# issue 26, Must show 4
@pytest.mark.parametrize(("older", "newer"), ALIASES)
def test_an_alias_has_its_name_in_each_setting(older: str, newer: str) -> None:
    in_4_9 = NAMES[NEWER][older].name
    assert newer == in_4_9 or older in FIELDS
    assert NAMES[OLDER][older].name == NAMES[OLDER][newer].name == NAMES[OLDER][in_4_9].name
    assert NAMES[NEWER][newer].name == in_4_9


# issue 26, part 5
def test_with_both_each_series_goes_out_once_under_each_name() -> None:
    came = page_of({older: str(WHOLE) for older, _ in ALIASES})
    both = out("both", came)
    older, newer = out(OLDER, came), out(NEWER, came)
    assert samples_of(both) == {**samples_of(older), **samples_of(newer)}
    assert families(older).isdisjoint(families(newer))
    assert metadata_of(both) == {**metadata_of(older), **metadata_of(newer)}
    # both names are one field: read again, one of them is left out as the other's double
    again = Exporter(OLDER).page(both.decode())
    assert samples_of(again.body) == samples_of(older)
    assert again.rejected == {"duplicate": len(ALIASES)}


def own_names(generation: str) -> Iterable[str]:
    """The name of each field of a generation that DCGM calls its own; not twice where it is there in two units."""
    fields = [field for field in BOOK.entries.values() if BOOK.names(field, generation)]
    in_base_units = {field.in_base_unit_of for field in fields}
    return (
        PREFIX + BOOK.names(field, generation)[-1]
        for field in fields
        if field.number not in in_base_units and field.number != 1  # the driver's version
    )


# issue 26, part 5
@pytest.mark.parametrize("generation", WITH_NEW_NAMES)
def test_every_field_of_a_generation_goes_there_and_comes_back(generation: str) -> None:
    before = {name for older in WITH_NEW_NAMES[: WITH_NEW_NAMES.index(generation)] for name in own_names(older)}
    new = [name for name in own_names(generation) if name not in before]
    assert len(new) > 5
    came = page_of({name: str(number * WHOLE) for number, name in enumerate(new, 1)})
    for there, back in ((OLDER, NEWER), (NEWER, OLDER)):
        body = out(back, came)
        assert numbers_of(out(back, out(there, came))) == numbers_of(body)
        assert out(back, body) == body
        assert len(samples_of(body)) == came.count("\nDCGM_FI_")

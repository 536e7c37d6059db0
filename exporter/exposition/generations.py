"""The generations of DCGM that a page can be of: by its families' names, its labels and the form of its values. Pure.

Each name was there from one generation of DCGM to another (the dictionary). dcgm-exporter itself changed with 4.8.3,
which came with DCGM 4.6: the label Hostname became hostname, values are printed as Go's %g does, and two families of
its own came. A page shows no more than that, so the answer is a span. A page that contradicts itself has none.
"""

import re
from dataclasses import replace

from exporter.dcgm.dictionary import (
    LAST_WITH_ALIASES,
    LAST_WITH_OLDER_NAMES,
    PREFIX,
    Dictionary,
    FieldName,
    dictionary,
)
from exporter.exposition.units import RATIO, Shown, unit_shown
from exporter.model.page_generation import BOTH, NEWER, OLDER, SHELL, PageGeneration
from exporter.model.slices import Work

_EXPORTER_4_8_3 = "4.6.0"  # the DCGM with which dcgm-exporter 4.8.3 came
_BEFORE_4_8_3 = "4.5.3"
_OWN_SINCE_4_8_3 = frozenset({"DCGM_EXP_CLOCK_EVENTS_TOTAL", "DCGM_EXP_XID_ERRORS_TOTAL"})
_FAMILY = re.compile(rb"^(?:# TYPE )?(DCGM_\w+|dcgm_\w+)(?=[{ \t])", re.MULTILINE)
# before 4.8.3 a value has no exponent, and six decimals or none
_WITH_EXPONENT = re.compile(rb"^DCGM_[^\n]*\} [0-9.]+e[+-][0-9]+\s*$", re.MULTILINE)
_SIX_DECIMALS = re.compile(rb"^DCGM_[^\n]*\} [0-9]+\.[0-9]*0\s*$", re.MULTILINE)
# another vendor's samples on the same page have a label hostname of their own
_HOSTNAME_SINCE = re.compile(rb'^DCGM_\w+\{(?:[^\n]*,)?hostname="', re.MULTILINE)
_HOSTNAME_BEFORE = re.compile(rb'^DCGM_\w+\{(?:[^\n]*,)?Hostname="', re.MULTILINE)
_SLICE_BYTES = 256 * 1024


def generation_of(body: bytes) -> Work[PageGeneration]:
    """What a page can be of. Works in slices."""
    families: set[str] = set()
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + _SLICE_BYTES) + 1 or len(body)
        families.update(name.decode() for name in _FAMILY.findall(body, start, end))
        start = end
        yield
    if any(name.startswith("dcgm_") for name in families) and not any(name.startswith("DCGM_") for name in families):
        return PageGeneration(names=SHELL)
    book = dictionary()
    return _by_form(_by_names(book, families), book, body, families)


def _by_names(book: Dictionary, families: set[str]) -> PageGeneration:
    """The generations that have all these names, and whether the names are those before or since DCGM 4.6."""
    place = book.generations.index
    spans: dict[str, list[FieldName]] = {}
    for field in book.entries.values():
        for name in field.names:
            spans.setdefault(PREFIX + name.text, []).append(name)
    seen = [spans[name] for name in families if name in spans]
    if not seen:
        return PageGeneration()
    first = max(min(place(name.first) for name in names) for names in seen)
    last = min(max(place(name.last or book.generations[-1]) for name in names) for names in seen)
    older, newer = _changed(book)
    words = {(True, False): OLDER, (False, True): NEWER, (True, True): BOTH}
    names = words.get((bool(families & older), bool(families & newer)), "")
    return PageGeneration(book.generations[first], book.generations[last], names, contradicts=first > last)


def _changed(book: Dictionary) -> tuple[set[str], set[str]]:
    """The whole names of fields with another name since DCGM 4.6, or another field in base units: older and newer."""
    older: set[str] = set()
    newer: set[str] = set()
    in_base_units = {field.in_base_unit_of for field in book.entries.values()}
    for field in book.entries.values():
        before = {PREFIX + name for name in book.names(field, LAST_WITH_OLDER_NAMES)}
        since = {PREFIX + name.text for name in field.names} - before
        if field.in_base_unit_of is not None or (before and since):
            newer |= since
        if field.number in in_base_units or since:
            older |= before
    return older, newer


def _by_form(page: PageGeneration, book: Dictionary, body: bytes, families: set[str]) -> PageGeneration:
    """The same, narrowed by what dcgm-exporter 4.8.3 changed."""
    place = book.generations.index
    if not page.last or page.contradicts:
        return page
    is_since = _HOSTNAME_SINCE.search(body) is not None or not families.isdisjoint(_OWN_SINCE_4_8_3)
    is_before = _HOSTNAME_BEFORE.search(body) is not None
    if not is_since and not is_before:
        is_since = _WITH_EXPONENT.search(body) is not None
        is_before = _SIX_DECIMALS.search(body) is not None
    is_with_aliases = RATIO in body and unit_shown(body) is Shown.PERCENT
    first = max(place(page.first), place(_EXPORTER_4_8_3) if is_since else 0)
    last = place(page.last)
    if is_before:
        last = min(last, place(_BEFORE_4_8_3))
    if is_with_aliases:
        last = min(last, place(LAST_WITH_ALIASES))
    return replace(page, first=book.generations[first], last=book.generations[last], contradicts=first > last)

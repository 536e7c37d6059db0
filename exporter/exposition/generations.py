"""The generations of DCGM that a page can be of: by its families' names, its labels and the form of its values. Pure.

Each name was there from one generation of DCGM to another (the dictionary). dcgm-exporter itself changed with 4.8.3,
which came with DCGM 4.6: the label Hostname became hostname, values are printed as Go's %g does, and two families of
its own came. A page shows no more than that, so the answer is a span. A page that contradicts itself has none.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from exporter.dcgm.dictionary import (
    LAST_WITH_ALIASES,
    LAST_WITH_OLDER_NAMES,
    PREFIX,
    Dictionary,
    dictionary,
)
from exporter.exposition.units import RATIO, Shown, unit_shown
from exporter.model.page_generation import BOTH, NEWER, OLDER, SHELL, PageGeneration
from exporter.model.slices import Work

_EXPORTER_4_8_3 = "4.6.0"  # the DCGM with which dcgm-exporter 4.8.3 came
_BEFORE_4_8_3 = "4.5.3"
_OWN_SINCE_4_8_3 = frozenset({"DCGM_EXP_CLOCK_EVENTS_TOTAL", "DCGM_EXP_XID_ERRORS_TOTAL"})
_FAMILY = re.compile(rb"^(?:# TYPE )?(DCGM_\w+|dcgm_\w+)(?=[{ \t])", re.MULTILINE)
# What dcgm-exporter 4.8.3 changed. Before it, a value has no exponent, and six decimals or none. Another vendor's
# samples on the same page have a label hostname of their own.
_WITH_EXPONENT = re.compile(rb"^DCGM_[^\n]*\} [0-9.]+e[+-][0-9]+\s*$", re.MULTILINE)
_SIX_DECIMALS = re.compile(rb"^DCGM_[^\n]*\} [0-9]+\.[0-9]*0\s*$", re.MULTILINE)
_HOSTNAME_SINCE = re.compile(rb'^DCGM_\w+\{(?:[^\n]*,)?hostname="', re.MULTILINE)
_HOSTNAME_BEFORE = re.compile(rb'^DCGM_\w+\{(?:[^\n]*,)?Hostname="', re.MULTILINE)
_FORMS = (_HOSTNAME_SINCE, _HOSTNAME_BEFORE, _WITH_EXPONENT, _SIX_DECIMALS)
_SLICE_BYTES = 128 * 1024  # a slice takes 10 ms


# whose names a page has, by whether it has older and newer ones
_NAMES = {(True, False): OLDER, (False, True): NEWER, (True, True): BOTH}


class _GenerationSpan(NamedTuple):
    """The first and the last generation with a name, by their places in the dictionary."""

    first: int
    last: int


def generation_of(body: bytes) -> Work[PageGeneration]:
    """What a page can be of. Works in slices."""
    families: set[str] = set()
    forms: set[re.Pattern[bytes]] = set()
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + _SLICE_BYTES) + 1 or len(body)
        families.update(name.decode() for name in _FAMILY.findall(body, start, end))
        forms.update(form for form in _FORMS if form not in forms and form.search(body, start, end))
        start = end
        yield
    if any(name.startswith("dcgm_") for name in families) and not any(name.startswith("DCGM_") for name in families):
        return PageGeneration(names=SHELL)
    book = dictionary()
    yield
    by_names = _by_names(book, families)
    yield
    return _by_form(by_names, book, body, forms, families)


def _by_names(book: Dictionary, families: set[str]) -> PageGeneration:
    """The generations that have all these names, and whether the names are those before or since DCGM 4.6."""
    spans = _spans(book)
    seen = [spans[name] for name in families if name in spans]
    if not seen:
        return PageGeneration()
    first = max(span.first for span in seen)
    last = min(span.last for span in seen)
    older, newer = _changed(book)
    has_older = not families.isdisjoint(older)
    has_newer = not families.isdisjoint(newer)
    names = _NAMES.get((has_older, has_newer), "")
    return PageGeneration(book.generations[first], book.generations[last], names, contradicts=first > last)


def _spans(book: Dictionary) -> Mapping[str, _GenerationSpan]:
    """The span of each whole name. If two fields have had a name, it is the span of both."""
    place = book.generations.index
    newest = book.generations[-1]
    spans: dict[str, _GenerationSpan] = {}
    for field in book.entries.values():
        for name in field.names:
            span = _GenerationSpan(place(name.first), place(name.last or newest))
            other = spans.get(PREFIX + name.text, span)
            spans[PREFIX + name.text] = _GenerationSpan(min(span.first, other.first), max(span.last, other.last))
    return spans


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


def _by_form(
    page: PageGeneration, book: Dictionary, body: bytes, forms: set[re.Pattern[bytes]], families: set[str]
) -> PageGeneration:
    """The same, narrowed by what dcgm-exporter 4.8.3 changed; `forms` are those of _FORMS that the page has."""
    if not page.last or page.contradicts:
        return page
    place = book.generations.index
    first = place(page.first)
    last = place(page.last)
    is_before, is_since = _sides_of_4_8_3(forms, families)
    if is_since:
        first = max(first, place(_EXPORTER_4_8_3))
    if is_before:
        last = min(last, place(_BEFORE_4_8_3))
    if RATIO in body and unit_shown(body) is Shown.PERCENT:
        last = min(last, place(LAST_WITH_ALIASES))
    return replace(page, first=book.generations[first], last=book.generations[last], contradicts=first > last)


def _sides_of_4_8_3(forms: set[re.Pattern[bytes]], families: set[str]) -> tuple[bool, bool]:
    """Whether something on the page is from before dcgm-exporter 4.8.3, and whether something is from it or later.

    The form of values counts only if neither label nor family tells.
    """
    is_before = _HOSTNAME_BEFORE in forms
    is_since = _HOSTNAME_SINCE in forms or not families.isdisjoint(_OWN_SINCE_4_8_3)
    if is_before or is_since:
        return is_before, is_since
    return _SIX_DECIMALS in forms, _WITH_EXPONENT in forms

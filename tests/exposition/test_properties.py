"""Properties of the join over generated pages: odd label values and broken lines included."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.dividing.sharing import CounterBook
from exporter.exposition import page_reader
from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.devices import DeviceKey, Owners
from exporter.model.pages import Page
from exporter.ownership.labels import LabelPolicy
from tests.support.reference_join import reference_join
from tests.support.strategies import (
    Row,
    attribution_of,
    escape,
    owner_states,
    pages,
    policies,
    rows,
    tidy_pages,
    with_other_values,
)


def everything(_: str) -> bool:
    return True


def no_power(name: str) -> bool:
    return name != "DCGM_FI_DEV_POWER_USAGE"


def joiner_of(policy: LabelPolicy, *, all_families: bool = True) -> Joiner:
    return Joiner(
        read_subject=policy.read_subject,
        is_owner_label=policy.is_owner_label,
        wanted=everything if all_families else no_power,
        nobodys=policy.nobodys,
    )


@settings(max_examples=50, deadline=None)
@given(
    bodies=st.one_of(st.lists(pages, max_size=3), st.lists(tidy_pages(), min_size=1, max_size=2)),
    policy=policies,
    owners=st.tuples(owner_states(), owner_states()),
    all_families=st.booleans(),
    seed=st.integers(0, 99),
    block_bytes=st.sampled_from((1, 100, 64 * 1024)),
)
def test_the_fast_join_gives_the_bytes_of_the_reference(
    bodies: list[bytes],
    policy: LabelPolicy,
    owners: tuple[Owners, Owners],
    all_families: bool,
    seed: int,
    block_bytes: int,
) -> None:
    joiner = joiner_of(policy, all_families=all_families)
    moved = [with_other_values(body, seed) for body in bodies]
    books = (CounterBook(), CounterBook())
    (first, second), of_reference = ([attribution_of(state, policy, book) for state in owners] for book in books)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_reader, "BLOCK_BYTES", block_bytes)
        # the same joiner over its life: cold, unchanged, new values, new owners, a page gone, back again
        for moment, pages_now, attribution in (
            (0, bodies, first),
            (0, bodies, first),
            (1, moved, first),
            (1, moved, second),
            (2, moved[1:], second),
            (3, bodies, second),
            # one that waited long
            (1, moved, second),
        ):
            for book in books:
                book.turn_to([Page(source="dcgm", body=b"", read_at_seconds=0.0, moment=moment)])
            joined = joiner.join(pages_now, attribution)
            its_own = of_reference[0 if attribution is first else 1]
            expected, rejected = reference_join(pages_now, policy, its_own, everything if all_families else no_power)
            assert joined.body == expected
            assert joined.size == len(expected)
            assert Counter(joined.rejected) == rejected


@settings(max_examples=30, deadline=None)
@given(bodies=st.lists(pages, max_size=2), policy=policies, owners=owner_states())
def test_the_official_parser_and_our_reader_see_the_same_page(
    bodies: list[bytes], policy: LabelPolicy, owners: Owners
) -> None:
    text = joiner_of(policy).join(bodies, attribution_of(owners, policy)).body.decode()
    # their parser calls a counter's sample foo_total whatever it was called
    theirs = Counter(
        (sample.name.removesuffix("_total"), frozenset(sample.labels.items()), repr(float(sample.value)))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )
    ours = Counter(
        (
            line.name.decode().removesuffix("_total"),
            frozenset((name.decode(), plain(value.decode())) for name, value in line.labels),
            repr(float(line.value)),
        )
        for line in map(read_line, text.encode().split(b"\n"))
        if isinstance(line, SampleLine)
    )
    assert ours == theirs


def plain(value: str) -> str:
    return (
        value.encode()
        .replace(b"\\\\", b"\0")
        .replace(b'\\"', b'"')
        .replace(b"\\n", b"\n")
        .replace(b"\0", b"\\")
        .decode()
    )


@settings(max_examples=30, deadline=None)
@given(sampled=st.lists(rows(attributed=False), max_size=12), owners=owner_states())
def test_every_valid_sample_goes_out_once_per_owner_with_its_bytes(sampled: list[Row], owners: Owners) -> None:
    policy = LabelPolicy()
    body = "".join(f"{row.text}\n" for row in sampled).encode()
    out = joiner_of(policy).join([body], attribution_of(owners, policy)).body.decode()
    expected = []
    seen = set()
    for row in sampled:
        if row.name.startswith("pod_gpu_exporter_"):
            continue
        labels = dict(row.labels)
        uuid = next((labels[name] for name in ("UUID", "uuid", "gpu_uuid") if labels.get(name)), "")
        holders = owners.of(DeviceKey(uuid=uuid, instance=labels.get("GPU_I_ID", ""))) if uuid else ()
        if labels.get("vgpu") and len(holders) > 1:
            holders = ()
        inside = [f'{name}="{escape(value)}"' for name, value in row.labels]
        additions = [
            (holder.owner.pod, holder.owner.namespace, holder.owner.container, holder.shared) for holder in holders
        ] or [("", "", "", False)]
        for pod, namespace, container, shared in additions:
            added = [f'pod="{escape(pod)}"', f'namespace="{escape(namespace)}"', f'container="{escape(container)}"']
            added += ['gpu_shared="true"'] * shared
            identity = (row.name, frozenset(pair for pair in inside + added if not pair.endswith('=""')))
            if identity not in seen:
                seen.add(identity)
                expected.append(f"{row.name}{{{','.join(inside + added)}}} {row.value}")
    assert out.splitlines() == expected or out.split("\n")[:-1] == expected


@settings(max_examples=75, deadline=None)
@given(body=pages)
def test_joining_what_was_joined_changes_nothing(body: bytes) -> None:
    policy = LabelPolicy()
    nobody = attribution_of(Owners(), policy)
    once = joiner_of(policy).join([body], nobody)
    # the owner's labels are now written as one set, the blanks inside braces with them: from here on nothing moves
    twice = joiner_of(policy).join([once.body], nobody)
    thrice = joiner_of(policy).join([twice.body], nobody)
    assert thrice.body == twice.body
    assert twice.rejected == {}
    assert twice.sample_count == once.sample_count


@settings(max_examples=100, deadline=None)
@given(value=st.floats())
def test_a_value_that_go_prints_is_a_value(value: float) -> None:
    for text in (repr(value), f"{value:g}", f"{value:.6f}"):
        line = read_line(f"a {text}".encode())
        assert isinstance(line, SampleLine)
        assert line.value.decode() == text
        assert math.isnan(value) or math.isclose(float(line.value), value, rel_tol=1e-5, abs_tol=1e-6)

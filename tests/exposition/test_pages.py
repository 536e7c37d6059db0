"""Several upstreams' pages, joined as one: which rows belong together is judged page by page."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import page_reader
from exporter.exposition.join import Joiner
from exporter.exposition.series import MOST_DEVICES, SeriesReader
from exporter.model.devices import DeviceKey, Holder, Owners
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.reference_join import reference_join

HOLDER = Holder(owner=Owner(namespace="ml", pod="held", container="main"), resource="nvidia.com/gpu", shared=False)
HELD = Owners(holders={DeviceKey(uuid="GPU-1"): (HOLDER,)})
SPLIT_BY = b'a{UUID="GPU-1",pod="%b",namespace="n",container="c"} %d\n'


def joiner_of(policy: LabelPolicy) -> Joiner:
    return Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)


# issue 8: two pages that disagree are not one page of two owners' parts
def test_two_upstreams_that_name_different_owners_of_a_gpu_tell_it_twice() -> None:
    policy = LabelPolicy()
    one, other = SPLIT_BY % (b"x", 1), SPLIT_BY % (b"y", 2)
    joined = joiner_of(policy).join([one, other], Attribution(HELD, policy))
    assert joined.body == b'a{UUID="GPU-1",pod="held",namespace="ml",container="main"} 1\n'
    assert joined.rejected == {"duplicate": 1}
    in_one_page = joiner_of(policy).join([one + other], Attribution(HELD, policy))
    assert in_one_page.body == one + other
    # where the kubelet knows nothing, each page's word stays
    assert joiner_of(policy).join([one, other], Attribution(Owners(), policy)).body == one + other


def test_a_reader_takes_the_last_pages_blocks_and_leaves_none() -> None:
    policy = LabelPolicy()
    reader = page_reader.PageReader(SeriesReader(policy.read_subject, policy.is_owner_label), lambda _: True)
    body = b'a{UUID="GPU-1"} 1\n'
    first, _ = at_once(reader.read(body, None))
    kept = first.blocks[0]
    second, places = at_once(reader.read(body, first))
    assert (first.blocks, second.blocks, places) == ([], [kept], [(0, len(body))])
    # a page with more devices than there is room for keeps no block
    many = b"".join(b'a{UUID="GPU-%d"} 1\n' % number for number in range(MOST_DEVICES + 1))
    third, _ = at_once(reader.read(many, second))
    before = third.blocks[0]
    fourth, _ = at_once(reader.read(many, third))
    assert (second.blocks, third.blocks) == ([], [])
    assert before not in fourth.blocks


def test_an_empty_page_ends_before_the_first_sample_of_the_next() -> None:
    policy = LabelPolicy()
    reader = page_reader.PageReader(SeriesReader(policy.read_subject, policy.is_owner_label), lambda _: True)
    body = b'a{UUID="GPU-1"} 1\n'
    first, _ = at_once(reader.read(2 * body, None, [0, len(body)]))
    assert first.page_starts == (0, 1)
    again, _ = at_once(reader.read(2 * body, first, [0, len(body)]))
    assert again.page_starts == (0, 1)


def text_of(upstream: int, sample: tuple[str, str, str, str, int]) -> bytes:
    family, uuid, pod, vgpu, value = sample
    return f'{family}{{UUID="{uuid}",from="{upstream}",pod="{pod}",vgpu="{vgpu}"}} {value}\n'.encode()


SAMPLES = st.tuples(
    st.sampled_from(("# TYPE a gauge\na", "a", "b", "unwanted", "bad-")),
    st.sampled_from(("GPU-1", "GPU-2")),
    st.sampled_from(("", "x", "y")),
    st.sampled_from(("", "", "", "7")),
    st.integers(0, 9),
)
PAGES = st.lists(st.lists(SAMPLES, max_size=5), max_size=4).map(
    lambda pages: [b"".join(text_of(number, sample) for sample in page) for number, page in enumerate(pages)]
)


@settings(max_examples=75, deadline=None)
@given(pages=st.lists(PAGES, min_size=1, max_size=3), block_bytes=st.sampled_from((1, 100, 64 * 1024)))
def test_what_is_judged_page_by_page_is_so_whatever_was_known(pages: list[list[bytes]], block_bytes: int) -> None:
    policy = LabelPolicy()
    attribution = Attribution(HELD, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_reader, "BLOCK_BYTES", block_bytes)
        knowing = Joiner(
            read_subject=policy.read_subject,
            is_owner_label=policy.is_owner_label,
            wanted=lambda name: name != "unwanted",
        )
        for bodies in pages:
            body, rejected = reference_join(bodies, policy, attribution, lambda name: name != "unwanted")
            joined = knowing.join(bodies, attribution)
            assert joined.body == body
            assert Counter(joined.rejected) == rejected

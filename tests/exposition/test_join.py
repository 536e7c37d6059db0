"""The join on small pages: what goes out for what came in."""

from typing import Any

import pytest

from exporter.exposition.check import has_sample
from exporter.exposition.join import Joiner
from exporter.exposition.series import MOST_DEVICES
from exporter.exposition.shape_reader import Wanted
from exporter.model.devices import Assignment
from exporter.model.pages import JoinedPage
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="web", pod="serve-1", container="server")


def join(
    *bodies: bytes, owns: dict[str, Owner] | None = None, wanted: Wanted = lambda _: True, **policy: Any
) -> JoinedPage:
    labels = LabelPolicy(**policy)
    owners = build_owners(
        Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id)
        for device_id, owner in (owns or {}).items()
    )
    joiner = Joiner(
        read_subject=labels.read_subject,
        is_owner_label=labels.is_owner_label,
        wanted=wanted,
        nobodys=labels.nobodys,
    )
    return joiner.join(bodies, Attribution(owners, labels))


IDLE = b'pod="",namespace="",container=""'


@pytest.mark.parametrize(
    ("incoming", "outgoing"),
    [
        (b"a 1\n", b"a{%b} 1\n" % IDLE),
        (b"a{} 1\n", b"a{%b} 1\n" % IDLE),
        (b'a{x="y"} 1\n', b'a{x="y",%b} 1\n' % IDLE),
        (b'a{x="y",} 1\n', b'a{x="y",%b} 1\n' % IDLE),
        (b'a{x="y"}1\n', b'a{x="y",%b}1\n' % IDLE),
        (b'a{x="y"} 1 5\n', b'a{x="y",%b} 1 5\n' % IDLE),
        (b'a{UUID="GPU-1"} 1\n', b'a{UUID="GPU-1",pod="train-0",namespace="ml",container="main"} 1\n'),
        (b'a{UUID="GPU-1",pod=""} 1\n', b'a{UUID="GPU-1",pod="train-0",namespace="ml",container="main"} 1\n'),
        (b'a{uuid="GPU-1"} 1\n', b'a{uuid="GPU-1",pod="train-0",namespace="ml",container="main"} 1\n'),
        (b'a{gpu_uuid="GPU-1"} 1\n', b'a{gpu_uuid="GPU-1",pod="train-0",namespace="ml",container="main"} 1\n'),
        # no newline at the end, carriage returns, blank lines and comments
        (b"a 1", b"a{%b} 1\n" % IDLE),
        (b"a 1\r\n\r\n# hi\r\n", b"a{%b} 1\n\n# hi\n" % IDLE),
        (b"", b""),
        (b"\n", b"\n"),
    ],
)
def test_labels_are_added(incoming: bytes, outgoing: bytes) -> None:
    assert join(incoming, owns={"GPU-1": A}).body == outgoing


@pytest.mark.parametrize(
    ("incoming", "outgoing", "rejected"),
    [
        # metadata: once, before the first sample, never against what was said
        ([b"# TYPE a gauge\n# TYPE a gauge\n"], b"# TYPE a gauge\n", {}),
        ([b"# TYPE a gauge\n# TYPE a counter\n"], b"# TYPE a gauge\n", {"late_metadata": 1}),
        ([b"# HELP a x\n# HELP a y\n"], b"# HELP a x\n", {"late_metadata": 1}),
        ([b"a 1\n# TYPE a gauge\n# HELP a x\n"], b"a 1\n", {"late_metadata": 2}),
        ([b"# HELP a x\n# TYPE a gauge\na 1\n", b'# HELP a x\n# TYPE a gauge\na{b="2"} 1\n'],
         b'# HELP a x\n# TYPE a gauge\na 1\na{b="2"} 1\n', {}),
        ([b"# TYPE a summary\n# TYPE a_sum gauge\na_sum 1\n"], b"# TYPE a summary\na_sum 1\n", {"late_metadata": 1}),
        # families may be interleaved
        ([b'# TYPE a gauge\na{g="0"} 1\n# TYPE b gauge\nb 1\na{g="1"} 1\n'],
         b'# TYPE a gauge\na{g="0"} 1\n# TYPE b gauge\nb 1\na{g="1"} 1\n', {}),
        # no two series are the same, whatever their labels' order, and an empty label is none
        ([b'a{x="1",y="2"} 1\na{y="2",x="1"} 2\n'], b'a{x="1",y="2"} 1\n', {"duplicate": 1}),
        ([b'a{x=""} 1\na 2\n'], b'a{x=""} 1\n', {"duplicate": 1}),
        ([b"a 1\n", b"a 2\n"], b"a 1\n", {"duplicate": 1}),
        # what is ours is ours
        ([b"# TYPE pod_gpu_exporter_x gauge\npod_gpu_exporter_x 1\na 1\n"], b"a 1\n", {"reserved_name": 2}),
        # inside a histogram le is a number
        ([b'# TYPE a histogram\na_bucket{le="x"} 1\na_bucket{le="+Inf"} 1\n'],
         b'# TYPE a histogram\na_bucket{le="+Inf"} 1\n', {"syntax": 1}),
        ([b'# TYPE a summary\na{quantile=""} 1\na_sum{le="x"} 1\n'],
         b'# TYPE a summary\na_sum{le="x"} 1\n', {"syntax": 1}),
        ([b'a{le="x"} 1\n'], b'a{le="x"} 1\n', {}),
        # one bad line never costs the page
        ([b"a 1\nwhat is this\nb{ 1\nc x\nd 1\n"], b"a 1\nd 1\n", {"value": 2, "syntax": 1}),
        ([b'a 1 # {t="x"} 1\n'], b"a 1\n", {"exemplar": 1}),
    ],
)  # fmt: skip
def test_what_goes_out_always_parses(incoming: list[bytes], outgoing: bytes, rejected: dict[str, int]) -> None:
    joined = join(*incoming, idle_labels=False)
    assert (joined.body, dict(joined.rejected)) == (outgoing, rejected)


def test_a_shared_device_has_one_row_per_owner_in_stable_order() -> None:
    joined = join(b'a{UUID="GPU-1"} 1.50\nb 2\n', owns={"GPU-1::1": B, "GPU-1::0": A}, idle_labels=False)
    assert joined.body == (
        b'a{UUID="GPU-1",pod="train-0",namespace="ml",container="main",gpu_shared="true"} 1.50\n'
        b'a{UUID="GPU-1",pod="serve-1",namespace="web",container="server",gpu_shared="true"} 1.50\n'
        b"b 2\n"
    )
    assert joined.sample_count == 3


def test_to_split_values_changes_nothing_of_devices_with_one_holder() -> None:
    body = b'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1"} 80\na{UUID="GPU-2"} 1\n# a comment\na{UUID="GPU-3"} 3\n'
    owns = {"GPU-1": A, "GPU-2": B}
    split = join(body, owns=owns, sharing="split")
    assert split.body == join(body, owns=owns).body
    assert split.size == len(split.body)


# issue 28, churn-free series
@pytest.mark.parametrize(
    ("incoming", "outgoing"),
    [
        # whole, shared, nobody's, and no device
        (b'a{UUID="GPU-1"} 1\na{UUID="GPU-2"} 2\na{UUID="GPU-3"} 3\nb 4\n',) * 2,
        (b'a{UUID="GPU-1"} 1\na{UUID="GPU-3"} 3\n',) * 2,
        # owners that the page names go, with all that is theirs
        (b'a{UUID="GPU-3",pod="x",namespace="n",container="c",pod_uid="u",x="1"} 1\n', b'a{UUID="GPU-3",x="1"} 1\n'),
        (b'a{UUID="GPU-1",label_team="t",dra_claim_name="c",dra_pool_name="p"} 1 5\n', b'a{UUID="GPU-1"} 1 5\n'),
        (b'a{pod="x"} 1\n', b"a 1\n"),
        # of two owners' rows of a device the first is left, and virtual GPUs stay apart
        (b'a{UUID="GPU-3",pod="x"} 1\na{UUID="GPU-3",pod="y"} 2\na{UUID="GPU-3"} 3\n', b'a{UUID="GPU-3"} 1\n'),
        (b'a{UUID="GPU-2",vgpu="0",pod="x"} 1\na{UUID="GPU-2",vgpu="1",pod="y"} 2\n',
         b'a{UUID="GPU-2",vgpu="0"} 1\na{UUID="GPU-2",vgpu="1"} 2\n'),
    ],
)  # fmt: skip
def test_without_owners_each_device_has_one_row_whoever_holds_it(incoming: bytes, outgoing: bytes) -> None:
    held = {"GPU-1": A, "GPU-2::0": A, "GPU-2::1": B}
    for owns in (held, {}):
        joined = join(incoming, owns=owns, names_owners=False, idle_labels=False)
        assert joined.body == outgoing
        assert sum(joined.rejected.values()) == outgoing.count(b'"GPU-3"} 1') * incoming.count(b'"GPU-3"} 3')


# issue 28, churn-free series
def test_readers_of_rows_see_the_owners_that_the_text_lacks() -> None:
    joined = join(b'a{UUID="GPU-1"} 1\na{UUID="GPU-2"} 2\n', owns={"GPU-1": A, "GPU-2::0": A, "GPU-2::1": B},
                  names_owners=False)  # fmt: skip
    # empty, so that Prometheus does not put the target's own pod in their place
    assert joined.body == b'a{UUID="GPU-1",%b} 1\na{UUID="GPU-2",%b} 2\n' % (IDLE, IDLE)
    cells = [(cell.subject.uuid, cell.row.owner, cell.value) for cell in joined.cells(frozenset((b"a",)))]
    assert cells == [("GPU-1", A, b"1"), ("GPU-2", A, b"2"), ("GPU-2", B, b"2")]
    assert joined.sample_count == 2


def test_families_that_are_not_wanted_go_with_their_metadata_but_are_seen() -> None:
    joined = join(b'# TYPE a gauge\na{UUID="GPU-1"} 1\n# TYPE b gauge\nb 2\n', wanted=lambda name: name != "a")
    assert joined.body == b"# TYPE b gauge\nb{%b} 2\n" % IDLE
    assert [subject.uuid for subject in joined.subjects] == ["GPU-1", ""]
    assert dict(joined.rejected) == {}


def test_owners_names_are_escaped() -> None:
    odd = Owner(namespace='q"', pod="back\\slash", container="new\nline\0")
    body = join(b'a{UUID="GPU-1"} 1\n', owns={"GPU-1": odd}).body.decode()
    assert body == 'a{UUID="GPU-1",pod="back\\\\slash",namespace="q\\"",container="new\\nline\ufffd"} 1\n'


@pytest.mark.parametrize(
    "line",
    [
        b'a{x="1"} N/A',
        b'a{x="1"} 1e999',
        b'a{x="1"} -1e999',
        b'a{x="1"} 1_0',
        b'a{x="1"} ',
        b'a{x="1"} 1.2.3',
        # a line that is only a value, where a sample was
        b"5",
        b"NaN",
    ],
)
def test_a_line_that_turns_bad_between_two_scrapes_and_good_again(line: bytes) -> None:
    labels = LabelPolicy(idle_labels=False)
    joiner = Joiner(read_subject=labels.read_subject, is_owner_label=labels.is_owner_label, wanted=lambda _: True)
    nobody = Attribution(build_owners(()), labels)
    outgoing = [joiner.join([b'%b\nb{x="1"} 2\n' % now], nobody).body for now in (b'a{x="1"} 1', line, b'a{x="1"} 3')]
    assert outgoing == [b'a{x="1"} 1\nb{x="1"} 2\n', b'b{x="1"} 2\n', b'a{x="1"} 3\nb{x="1"} 2\n']


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"", False),
        (b"\n\n", False),
        (b"# HELP a x\n# TYPE a gauge\n", False),
        (b"<html>\n<title>502 Bad Gateway</title>\n</html>\n", False),
        (b"a N/A\n", False),
        (b"# x\na 1", True),
        (b"<html>\na 1\n", True),
        # the only sample stands anywhere, and in any form
        (b"a 1\n<html>\n", True),
        (b"\na 1\n\n", True),
        (b'a{x="y"}1\n', True),
        (b"a 1 5\n", True),
        # a word like a value behind what is no series, and behind a value what is no timestamp
        (b"?? 5\n", False),
        (b"no sample", False),
        (b"no sample\n<html>", False),
        (b"a 1 -5\n", False),
        (b"a 1 1e3\n", False),
    ],
)
def test_a_page_has_a_sample_or_it_is_none(body: bytes, answer: bool) -> None:
    assert at_once(has_sample(body)) is answer


# issue 15, line 18
def test_samples_of_devices_beyond_the_bound_keep_their_own_owners() -> None:
    line = b'a{UUID="GPU-%d",pod="p-%d",namespace="ns",container="c"} 1\n'
    came = [line % (number, number) for number in range(MOST_DEVICES + 3)]
    beyond = b"".join(came[MOST_DEVICES:])
    page = join(b"".join(came), owns={"GPU-0": A, f"GPU-{MOST_DEVICES + 1}": B})
    assert b'a{UUID="GPU-0",pod="train-0",namespace="ml",container="main"} 1\n' in page.body
    assert page.body.endswith(beyond)
    assert (page.unread, page.sample_count, page.rejected) == (3, MOST_DEVICES + 3, {})
    assert sum(bool(subject.gpu) for subject in page.subjects) == MOST_DEVICES == 1_024


# issue 15, line 18
def test_a_page_with_too_many_devices_costs_another_page_no_owner() -> None:
    many = b"".join(b'a{UUID="GPU-x-%d"} 1\n' % number for number in range(MOST_DEVICES + 3))
    page = join(many, b'b{UUID="GPU-1"} 1\n', owns={"GPU-1": A})
    assert b'b{UUID="GPU-1",pod="train-0",namespace="ml",container="main"} 1\n' in page.body
    assert page.unread == 3


# issue 15, line 18
def test_devices_have_room_again_once_those_before_them_are_gone() -> None:
    labels = LabelPolicy()
    joiner = Joiner(read_subject=labels.read_subject, is_owner_label=labels.is_owner_label, wanted=lambda _: True)
    attribution = Attribution(build_owners([]), labels)
    for first in (0, 700, 1_400, 0):
        for count, unread in ((MOST_DEVICES, 0), (MOST_DEVICES + 9, 9), (MOST_DEVICES - 9, 0)):
            body = b"".join(b'a{UUID="GPU-%d"} 1\n' % number for number in range(first, first + count))
            assert joiner.join([body], attribution).unread == unread
            assert joiner.devices == min(count, MOST_DEVICES)

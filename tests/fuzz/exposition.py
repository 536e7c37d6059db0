"""Fuzzes the reader and the join of pages: any bytes in, the page that the plain reference makes out."""

from exporter.exposition.families import unescape
from exporter.exposition.join import Joiner
from exporter.exposition.lines import Reason, SampleLine, read_line
from exporter.model.devices import Assignment, Owners
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from tests.support.owners import build_owners
from tests.support.reference_join import reference_join
from tests.support.strategies import UUIDS, attribution_of

POLICIES = (
    LabelPolicy(names_owners=False),
    *(
        LabelPolicy(names=names, incoming_wins=wins, idle_labels=idle, sharing=sharing)
        for names in (("pod", "namespace", "container"), ("x", "y", "z"))
        for wins in (False, True)
        for idle in (False, True)
        for sharing in ("copy", "device")
    ),
)
A, B = (Owner(namespace="ml", pod=f'{pod}"\\\n', container="main") for pod in "ab")
OWNERS = build_owners(
    [
        Assignment(owner=A, resource="nvidia.com/gpu", device_id=UUIDS[0]),
        Assignment(owner=A, resource="nvidia.com/gpu", device_id=f"{UUIDS[1]}::0"),
        Assignment(owner=B, resource="nvidia.com/gpu", device_id=f"{UUIDS[1]}::1"),
    ]
)


def one_input(data: bytes) -> None:
    """The first byte chooses a policy, the rest is a page."""
    policy = POLICIES[data[0] % len(POLICIES)] if data else POLICIES[0]
    page = data[1:]
    joiner = Joiner(
        read_subject=policy.read_subject,
        is_owner_label=policy.is_owner_label,
        wanted=lambda _: True,
        nobodys=policy.nobodys,
    )
    for owners in (OWNERS, Owners()):
        attribution = attribution_of(owners, policy)
        joined = joiner.join([page], attribution)
        assert joiner.join([page], attribution).body == joined.body, "the second time is another page"
        expected, rejected = reference_join([page], policy, attribution, lambda _: True)
        assert joined.body == expected, "not what the reference makes of it"
        assert joined.rejected == dict(rejected)
        seen = set()
        for line in joined.body.split(b"\n"):
            found = read_line(line)
            assert not isinstance(found, Reason), f"{line!r} goes out: {found}"
            if isinstance(found, SampleLine):
                labels = frozenset((name, unescape(value)) for name, value in found.labels if value)
                assert (found.name, labels) not in seen, f"{line!r} goes out twice"
                seen.add((found.name, labels))

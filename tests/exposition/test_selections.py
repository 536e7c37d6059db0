"""The rows of a joined page by family: whoever asks, and however often for other families."""

import pytest

from exporter.exposition.join import Joiner
from exporter.exposition.selections import MOST_SELECTIONS
from exporter.model.devices import DeviceKey, Holder, Owners
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution

FAMILIES = [b"family_%d" % number for number in range(20)]
PAGE = b"".join(b'%b{UUID="GPU-1"} %d\n' % (name, number) for number, name in enumerate(FAMILIES))
HOLDERS = tuple(
    Holder(owner=Owner(namespace="ml", pod=pod, container="main"), resource="nvidia.com/gpu", shared=True)
    for pod in "ab"
)


# plain, and laid out since two hold the GPU
@pytest.mark.parametrize("holders", [HOLDERS[:1], HOLDERS])
def test_each_set_of_families_gets_its_own_rows_at_a_reused_address(holders: tuple[Holder, ...]) -> None:
    policy = LabelPolicy()
    attribution = Attribution(Owners(holders={DeviceKey(uuid="GPU-1"): holders}), policy)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    wrong = 0
    for number in range(200):
        name = FAMILIES[number % len(FAMILIES)]
        # as each goes out of use, the next takes its place in memory
        cells = joiner.join([PAGE], attribution).cells(frozenset({name}))
        rows = [(cell.family, cell.row.owner, cell.value) for cell in cells]
        wrong += rows != [(name, holder.owner, b"%d" % (number % len(FAMILIES))) for holder in holders]
    assert wrong == 0
    assert joiner._page
    (block,) = joiner._page.blocks
    assert len(block.selections) == MOST_SELECTIONS

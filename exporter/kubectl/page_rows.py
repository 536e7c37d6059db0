"""A dcgm-exporter's page → rows of /container/metrics, by the exporter's own reading and join. Pure.

Nobody but the page names owners here: its labels of pods, where dcgm-exporter runs with -k (DCGM_EXPORTER_KUBERNETES).

Tests: tests/kubectl/test_looks_without_exporter.py.
"""

from collections import Counter

from exporter.dcgm.fields import FIELDS
from exporter.exposition.check import has_sample, why_too_large
from exporter.exposition.join import Joiner
from exporter.model.device_row import DeviceRow
from exporter.model.devices import Owners
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.outputs.device_rows import rows
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution

_POLICY = LabelPolicy()
_OWNERS = Owners()
_WANTED = frozenset(name.encode() for name, field in FIELDS.items() if field.json)


class PageRows:
    """Makes rows of one dcgm-exporter's pages. It remembers the shape of the last page, so that the next costs less."""

    def __init__(self, node: str) -> None:
        """`node` is the name of the dcgm-exporter's node."""
        self._node = node
        self._attribution = Attribution(_OWNERS, _POLICY)
        self._joiner = Joiner(
            read_subject=_POLICY.read_subject, is_owner_label=_POLICY.is_owner_label, wanted=lambda _: True
        )

    def of(self, body: bytes, read_at_seconds: float) -> list[DeviceRow]:
        """The rows of a page that was read at a moment, in seconds since 1970.

        Raises:
            ValueError: it is no page with samples of GPUs; the text says why.
        """
        too_large = why_too_large(body)
        if too_large:
            raise ValueError(f"dcgm-exporter's page has {too_large}")
        if not at_once(has_sample(body)):
            raise ValueError("dcgm-exporter sends no page of metrics")
        joined = self._joiner.join([_samples_of_rows(body)], self._attribution)
        snapshot = Snapshot(
            node=self._node,
            owners=_OWNERS,
            joined=joined,
            health={},
            assignments_age_seconds=0.0,  # nobody else names owners: gpu_requests.py says what is not known for that
            read_at_seconds=read_at_seconds,
        )
        made = at_once(rows(snapshot))
        if not made:
            raise ValueError("dcgm-exporter's page has no GPU")
        holders = Counter(row.row_device for row in made)
        return [row._replace(gpu_shared=True) if holders[row.row_device] > 1 else row for row in made]


def _samples_of_rows(body: bytes) -> bytes:
    """The samples that rows are made of: a page has two to four times as many, and nobody sees the others here."""
    return b"\n".join(line for line in body.split(b"\n") if line.partition(b"{")[0] in _WANTED)

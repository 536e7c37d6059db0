"""The rows that go out for a sample: whose each is, by the kubelet's word and the page's, and which labels it gains."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from exporter.accounting.fields import ACTIVITY, OF_GPU, Additive
from exporter.accounting.repeated import share_page
from exporter.accounting.sharing import CounterBook, split_gauge
from exporter.attribution.labels import (
    DEVICE,
    SPLIT,
    LabelPolicy,
    labels_of_claim,
    labels_of_uid,
    pod_labels_among,
)
from exporter.attribution.measured_rows import Measurable, MeasuredRows
from exporter.attribution.measured_shares import MeasuredShares
from exporter.attribution.per_owner import PerOwner
from exporter.attribution.pod_labels import NOTHING, OfPod
from exporter.model.devices import AddedLabels, DeviceKey, Holder, Owners
from exporter.model.pages import Reading, Row, Rows, ShareValues, Subject
from exporter.model.pods import Owner
from exporter.model.slices import Work


class Attribution:
    """Says which rows go out for the samples of whole pages. One object for one state of owners."""

    def __init__(
        self,
        owners: Owners,
        policy: LabelPolicy,
        *,
        of_pods: Mapping[tuple[str, str], OfPod] = MappingProxyType({}),
        book: CounterBook | None = None,
        measured: MeasuredShares | None = None,
    ) -> None:
        """`of_pods`: what a pod's owners gain beside their names, by (namespace, pod). `book` outlives this object.

        `measured` has the same owners for the life of this object, while its values may change from page to page.
        """
        self._owners = owners
        self._policy = policy
        self._of_pods = of_pods
        self._book = book or CounterBook()
        self._idle: AddedLabels = tuple((name, "") for name in policy.names) if policy.idle_labels else ()
        self._idle_row = Row(labels=self._idle)
        self._nobody = Rows((self._idle_row,))  # one object for all that nobody holds
        self._additive = (
            {name.encode(): kind for name, kind in policy.additive.items()} if policy.sharing == SPLIT else {}
        )
        self._measured = (
            MeasuredRows(measured, policy.sharing, self._idle_row) if measured and policy.sharing != DEVICE else None
        )
        self._measurable: Mapping[bytes, Measurable] = self._measured.measurable if self._measured else {}
        self._of_gpu = {name: kind for name, kind in self._additive.items() if name.decode() in OF_GPU}

    @property
    def looks_at_families(self) -> bool:
        """Whether a sample's family makes a difference even where no sample came with an owner."""
        return bool(self._additive or self._measured)

    def read_first(self, subjects: Iterable[Subject]) -> frozenset[bytes]:
        """The families that `share` must see of a page with these subjects; none where nothing is repeated."""
        if not self._of_gpu or not any(subject.instance for subject in subjects):
            return frozenset()
        return frozenset((*self._of_gpu, *(name.encode() for name in ACTIVITY)))

    def share(self, readings: Iterable[Reading]) -> Work[Mapping[bytes, bytes]]:
        """What MIG instances have of a GPU's values, by series; a series that is not there keeps its value.

        Of the GPUs' counters it is noted how much they grew. It yields where other tasks may run.
        """
        return share_page(readings, self._of_gpu, self._book.share)

    def __call__(self, samples: Sequence[tuple[bytes, Subject]], /) -> list[Rows]:
        """For each sample of a page (family name and subject) the rows that go out.

        Subjects are told apart by identity: callers pass one object for all samples of a device.
        """
        per_owner = PerOwner(samples)
        if not per_owner and not self.looks_at_families:
            return self._by_subject_alone(samples)
        some_are_per_owner = bool(per_owner)
        worked_out: dict[tuple[int, bool, Additive | None, bool, Measurable | None], Rows] = {}
        rows = []
        for sample in samples:
            name, subject = sample
            is_per_owner = sample in per_owner if some_are_per_owner else bool(subject.vgpu)
            kind = self._additive.get(name)
            is_part = bool(subject.instance) and not is_per_owner and self._of_gpu.get(name) is Additive.GAUGE
            measurable = None if is_per_owner else self._measurable.get(name)
            memo = (id(subject), is_per_owner, kind, is_part, measurable)
            its_rows = worked_out.get(memo)
            if its_rows is None:
                its_rows = self._rows(subject, kind, per_owner=is_per_owner, measurable=measurable)
                if is_part and its_rows.values is None:
                    its_rows = Rows(its_rows.each, _as_it_is)
                worked_out[memo] = its_rows
            rows.append(its_rows)
        return rows

    def _by_subject_alone(self, samples: Sequence[tuple[bytes, Subject]]) -> list[Rows]:
        """The usual page: a sample's family makes no difference."""
        worked_out: dict[int, Rows] = {}
        rows = []
        for _, subject in samples:
            its_rows = worked_out.get(id(subject))
            if its_rows is None:
                its_rows = worked_out[id(subject)] = self._rows(subject, None, per_owner=bool(subject.vgpu))
            rows.append(its_rows)
        return rows

    def _rows(
        self, subject: Subject, kind: Additive | None, *, per_owner: bool, measurable: Measurable | None = None
    ) -> Rows:
        """`measurable` is how the family's values are made where the use of each owner is measured."""
        if subject.is_unread:
            return _AS_IT_CAME if subject.came_with else self._nobody
        key = subject.key
        holders = self._owners.of(key) if key.uuid else ()
        is_counter = kind is Additive.COUNTER and not per_owner and bool(key.uuid)
        if subject.came_with and (
            not holders or self._policy.incoming_wins or (per_owner and (len(holders) > 1 or not subject.vgpu))
        ):
            incoming = self._incoming(subject, subject.came_with, holders)
            return self._counter((incoming,), (subject.came_with,)) if is_counter else Rows((incoming,))
        if per_owner and (not subject.vgpu or len(holders) > 1):
            # Other rows of this family carry the owners; this row is the part that none of them holds.
            return self._nobodys(subject)
        rows = tuple(self._of_holder(holder, subject) for holder in holders)
        if is_counter:
            is_shared = any(holder.shared for holder in holders)
            return self._counter(rows, tuple(holder.owner for holder in holders), key if is_shared else None)
        if not holders:
            return self._nobodys(subject)
        if len(holders) > 1 and self._policy.sharing == DEVICE:
            return self._nobody
        if measurable and self._measured and any(holder.shared for holder in holders):
            measured = self._measured.of(measurable, key, [holder.owner for holder in holders], rows)
            if measured:
                return measured
        gauge = kind is Additive.GAUGE and len(holders) > 1
        return Rows(rows, _gauge_values(len(holders)) if gauge else None)

    def _nobodys(self, subject: Subject) -> Rows:
        extra = subject.came_extra
        if not extra:
            return self._nobody
        return Rows((Row(labels=(*self._idle, *extra), pod_labels=pod_labels_among(extra)),))

    def _counter(self, rows: tuple[Row, ...], owners: tuple[Owner, ...], shared: DeviceKey | None = None) -> Rows:
        """A counter's rows: the owners' and the one without owner, or that alone where there is no second page.

        `shared` is the device, if the owners share it: what they are measured to do decides then.
        """
        if not self._policy.divides_counters:
            return self._nobody
        measured = self._measured if shared else None

        def values(series: bytes, value: bytes) -> list[bytes]:
            times = measured.times(shared) if measured and shared else None
            return self._book.advance(series, owners, value, times)

        def peek(series: bytes, value: bytes) -> list[bytes]:
            return self._book.peek(series, owners, value)

        return Rows((*rows, self._idle_row), values, peek)

    def _of_holder(self, holder: Holder, subject: Subject) -> Row:
        """The row of a holder. Of the same pod, the page's uid and pod labels stay where the exporter has none."""
        owner = holder.owner
        known = self._of_pods.get((owner.namespace, owner.pod), NOTHING)
        uid, pod_labels = known.uid, known.labels
        labels = (*labels_of_uid(uid), *pod_labels, *labels_of_claim(holder.claim))
        came_with = subject.came_with
        if came_with is not None and (came_with.namespace, came_with.pod) == (owner.namespace, owner.pod):
            said = {name for name, _ in labels}
            came = (*labels_of_uid(subject.came_with_uid), *subject.came_extra)
            kept = tuple(label for label in came if label[0] not in said)
            uid = uid or subject.came_with_uid
            pod_labels = (*pod_labels_among(kept), *pod_labels)
            labels = (*kept, *labels)
        return Row(
            labels=(*self._policy.labels_of(owner, shared=holder.shared), *labels),
            owner=owner,
            shared=holder.shared,
            uid=uid,
            pod_labels=pod_labels,
            claim=holder.claim,
        )

    def _incoming(self, subject: Subject, owner: Owner, holders: Sequence[Holder]) -> Row:
        """The row of the owner that the page names. The kubelet's holders may say that the device is shared."""
        uid = subject.came_with_uid
        shared = subject.came_shared or any(holder.shared and holder.owner == owner for holder in holders)
        return Row(
            labels=(*self._policy.labels_of(owner, uid=uid, shared=shared), *subject.came_extra),
            owner=owner,
            shared=shared,
            uid=uid,
            pod_labels=pod_labels_among(subject.came_extra),
        )


_AS_IT_CAME = Rows((Row(labels=()),))


def _as_it_is(_: bytes, value: bytes) -> Sequence[bytes]:
    """The one row of an instance has what the instance has of its GPU."""
    return (value,)


def _gauge_values(parts: int) -> ShareValues:
    def values(_: bytes, value: bytes) -> list[bytes]:
        return split_gauge(value, parts)

    return values

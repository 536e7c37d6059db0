"""The rows that go out for a sample: each row's owner, by the kubelet and the page, and the labels that it gains."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from exporter.dcgm.fields import ACTIVITY, OF_GPU
from exporter.dcgm.table import Additive
from exporter.dividing.granted_parts import weights_of
from exporter.dividing.measured_values import (
    FREE,
    MEMORY,
    UTILIZATION,
    WORK,
    MeasuredShares,
    memory_texts,
    utilization_texts,
    work_texts,
)
from exporter.dividing.sharing import CounterBook, share_page, split_gauge
from exporter.model.devices import DeviceKey, Holder, Owners
from exporter.model.pages import Reading, Row, Rows, Subject, SubjectsOfFamilies
from exporter.model.pods import Owner
from exporter.model.slices import Work
from exporter.ownership.labels import (
    DEVICE,
    NOTHING,
    SPLIT,
    LabelPolicy,
    PodAdditions,
    labels_of_claim,
    labels_of_uid,
    pod_labels_among,
)


class PerOwner:
    """The samples of one page that are already one owner's part of their device, and so are not copied or divided.

    A row of a virtual GPU is one owner's part. Several rows of one family and device that came with different owners
    are each one owner's part, too. A row without an owner beside a row with an owner reports the same GPU again. Beside
    a virtual GPU's row it is the part that no owner holds.
    """

    def __init__(self, samples: SubjectsOfFamilies) -> None:
        came_with_owners = any(subject.came_with for _, subject in samples)
        self._device_of = _device_numbers(samples) if came_with_owners else {}
        self._several = _of_several_owners(samples, self._device_of) if came_with_owners else frozenset()

    def __bool__(self) -> bool:
        """Whether the page has such samples: then a sample's rows depend on its family, too."""
        return bool(self._several)

    def __contains__(self, sample: tuple[bytes, Subject]) -> bool:
        name, subject = sample
        if subject.vgpu or not self._several:
            return bool(subject.vgpu)
        return (name, self._device_of[id(subject)]) in self._several


def _device_numbers(samples: SubjectsOfFamilies) -> dict[int, int]:
    """A number for each device, by id(subject). On a large page a key for every sample would cost 100 ms."""
    numbers: dict[object, int] = {}
    number_of: dict[int, int] = {}
    for _, subject in samples:
        if id(subject) not in number_of:
            number_of[id(subject)] = numbers.setdefault(subject.key, len(numbers))
    return number_of


def _of_several_owners(samples: SubjectsOfFamilies, device_of: Mapping[int, int]) -> frozenset[tuple[bytes, int]]:
    """The families and device numbers of which the page has a virtual GPU's row, or rows of different owners."""
    first: dict[tuple[bytes, int], Subject] = {}
    several: set[tuple[bytes, int]] = set()
    for name, subject in samples:
        if subject.came_with is None:
            continue
        family_and_device = (name, device_of[id(subject)])
        before = first.setdefault(family_and_device, subject)
        uids = {subject.came_with_uid, before.came_with_uid} - {""}
        is_another = before is not subject and (subject.came_with != before.came_with or len(uids) > 1)
        if (subject.vgpu or is_another) and subject.key.uuid:
            several.add(family_and_device)
    return frozenset(several)


# The way to make a family's values, and the unit of memory or of utilisation.
Measurable = tuple[Literal["memory", "free", "utilization", "work"], int]


class MeasuredRows:
    """Makes the rows of a shared device for families that are measured by owner."""

    def __init__(self, shares: MeasuredShares, sharing: str, nobodys: Row) -> None:
        self._shares = shares
        self._nobodys = nobodys
        self._nobody = Rows((nobodys,))
        measurable: dict[bytes, Measurable] = {family: ("memory", unit) for family, unit in MEMORY.items()}
        measurable |= {family: ("utilization", full) for family, full in UTILIZATION.items()}
        if sharing == SPLIT:
            measurable |= dict.fromkeys(FREE, ("free", 0))
            measurable |= dict.fromkeys(WORK, ("work", 0))
        self.measurable: Mapping[bytes, Measurable] = measurable

    def of(self, how: Measurable, device: DeviceKey, holders: Sequence[Holder], rows: Sequence[Row]) -> Rows | None:
        """The rows of `holders` with their values, and last the row of nobody if values add up.

        None if a value is unknown.
        """
        measured = self._shares
        owners = [holder.owner for holder in holders]
        shares = [(device, owner) for owner in owners]
        kind, unit = how
        if kind in ("memory", "free"):
            if not measured.memory_bytes.keys() >= {*shares}:
                return None
            if kind == "free":
                return self._nobody
            return Rows(
                (*rows, self._nobodys),
                lambda _, value: memory_texts(value, [measured.memory_bytes[share] for share in shares], unit),
            )
        if not measured.sm_ratios.keys() >= {*shares}:
            return None

        def ratios() -> Sequence[float]:
            return [measured.sm_ratios[share] for share in shares]

        if kind == "utilization":
            return Rows(tuple(rows), lambda _, value: utilization_texts(value, ratios(), unit))
        if device not in measured.nobodys_sm_ratios:
            return None
        granted = _granted(holders)
        return Rows(
            (*rows, self._nobodys),
            lambda _, value: work_texts(value, ratios(), measured.nobodys_sm_ratios[device], granted),
        )

    def times(self, device: DeviceKey) -> Mapping[Owner | None, int] | None:
        """The time (ns) for which each owner's kernels have run until now; None if it is not known."""
        return self._shares.sm_ns.get(device)


OfPods = Mapping[tuple[str, str], PodAdditions]
RowsOfSubject = tuple[Subject, DeviceKey, tuple[Holder, ...], Rows]  # the holders are those of the subject's device


class Attribution:
    """A function that gives the rows of the samples of whole pages. One object stands for one state of owners."""

    def __init__(
        self,
        owners: Owners,
        policy: LabelPolicy,
        *,
        of_pods: OfPods = MappingProxyType({}),
        book: CounterBook | None = None,
        measured: MeasuredShares | None = None,
        before: "Attribution | None" = None,
    ) -> None:
        """`of_pods` has the labels that a pod's owners gain, by (namespace, pod). `book` outlives this object.

        A device whose holders are the same object as in `before` keeps the rows of `before` that depend on nothing
        else. `measured` has the same owners for the life of this object; its values may change from page to page.
        """
        self._owners = owners
        self._policy = policy
        self._of_pods = of_pods
        self._book = book or CounterBook()
        self._idle = policy.idle
        self._idle_row = Row(labels=self._idle)
        self._nobody = Rows((self._idle_row,))  # one object for all devices that nobody holds
        additive = policy.additive if policy.sharing == SPLIT else {}
        self._additive = {name.encode(): kind for name, kind in additive.items()}
        self._measured: MeasuredRows | None = None
        self._measurable: Mapping[bytes, Measurable] = {}
        if measured and policy.sharing != DEVICE:
            self._measured = MeasuredRows(measured, policy.sharing, self._idle_row)
            self._measurable = self._measured.measurable
        self._rows_of: dict[int, RowsOfSubject] = {}
        self._rows_before = before.rows_with(of_pods) if before else {}
        self._of_gpu = {name: kind for name, kind in self._additive.items() if name.decode() in OF_GPU}

    def rows_with(self, of_pods: OfPods) -> Mapping[int, RowsOfSubject]:
        """The rows that depend only on holders and these labels of pods, by id(subject)."""
        return self._rows_of if self._of_pods is of_pods else {}

    @property
    def looks_at_families(self) -> bool:
        """Whether rows depend on a sample's family even if no sample came with an owner."""
        return bool(self._additive or self._measured)

    def read_first(self, subjects: Iterable[Subject]) -> frozenset[bytes]:
        """The families that `share` needs of a page with these subjects; none if no value of a GPU is repeated."""
        if not self._of_gpu or not any(subject.instance for subject in subjects):
            return frozenset()
        return frozenset((*self._of_gpu, *(name.encode() for name in ACTIVITY)))

    def share(self, readings: Iterable[Reading]) -> Work[Mapping[bytes, bytes]]:
        """The MIG instances' parts of their GPU's values, by series. A series that is not in it keeps its value.

        It notes the growth of the GPUs' counters, and yields where other tasks may run.
        """
        return share_page(readings, self._of_gpu, self._book.share)

    def __call__(self, samples: SubjectsOfFamilies, /) -> list[Rows]:
        """The rows of each sample, by family name and subject.

        Callers pass the same subject object for a whole device.
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
                its_rows = self._rows(subject, kind, per_owner=is_per_owner, how=measurable)
                if is_part and its_rows.values is None:
                    its_rows = Rows(its_rows.each, lambda _, value: (value,))  # the instance's part of its GPU
                worked_out[memo] = its_rows
            rows.append(its_rows)
        return rows

    def _by_subject_alone(self, samples: SubjectsOfFamilies) -> list[Rows]:
        worked_out: dict[int, Rows] = {}
        for _, subject in samples:
            if id(subject) not in worked_out:
                last = self._rows_before.get(id(subject))
                key = last[1] if last else subject.key
                holders = self._owners.of(key)
                if last is None or last[2] is not holders:
                    last = (subject, key, holders, self._rows(subject, None, per_owner=bool(subject.vgpu)))
                self._rows_of[id(subject)] = last
                worked_out[id(subject)] = last[3]
        return [worked_out[id(subject)] for _, subject in samples]

    def _rows(self, subject: Subject, kind: Additive | None, *, per_owner: bool, how: Measurable | None = None) -> Rows:
        """The rows of a sample. `how` is the way to make the family's values of each owner's measured use."""
        if subject.is_unread:
            return _AS_IT_CAME if subject.came_with else self._nobody
        key = subject.key
        holders = self._owners.of(key) if key.uuid else ()
        if kind is Additive.COUNTER and (per_owner or not key.uuid):
            kind = None
        is_one_of_several = per_owner and (not subject.vgpu or len(holders) > 1)
        if subject.came_with and (not holders or self._policy.incoming_wins or is_one_of_several):
            incoming = self._incoming(subject, subject.came_with, holders)
            if kind is Additive.COUNTER:
                return self._counter((incoming,), (subject.came_with,))
            return Rows((incoming,))
        if is_one_of_several:
            # Other rows of this family carry the owners; this row is the part that none of them holds.
            return self._nobodys(subject)
        return self._of_holders(subject, key, holders, kind, how)

    def _of_holders(
        self,
        subject: Subject,
        key: DeviceKey,
        holders: tuple[Holder, ...],
        kind: Additive | None,
        how: Measurable | None,
    ) -> Rows:
        """The rows of a device's holders: with values where these are measured or divided."""
        rows = tuple([self._of_holder(holder, subject) for holder in holders])
        if kind is Additive.COUNTER:
            owners = tuple(holder.owner for holder in holders)
            return self._counter(rows, owners, key if _are_shares(holders) else None, _granted(holders))
        if not holders:
            return self._nobodys(subject)
        if len(holders) > 1 and self._policy.sharing == DEVICE:
            return self._nobody
        if how and self._measured and _are_shares(holders):
            measured = self._measured.of(how, key, holders, rows)
            if measured:
                return measured
        if kind is Additive.GAUGE and len(holders) > 1:
            granted = _granted(holders)
            return Rows(rows, lambda _, value: split_gauge(value, len(holders), granted))
        return Rows(rows)

    def _nobodys(self, subject: Subject) -> Rows:
        extra = subject.came_extra
        if not extra:
            return self._nobody
        return Rows((Row(labels=(*self._idle, *extra), pod_labels=pod_labels_among(extra)),))

    def _counter(
        self,
        rows: tuple[Row, ...],
        owners: tuple[Owner, ...],
        shared: DeviceKey | None = None,
        granted: Sequence[int] | None = None,
    ) -> Rows:
        """The rows of a counter; only the row of nobody if there is no second page.

        `shared`: measured use divides it; where nothing is measured, what was `granted` does.
        """
        if not self._policy.divides_counters:
            return self._nobody
        measured = self._measured if shared else None

        def values(series: bytes, value: bytes) -> list[bytes]:
            times = measured.times(shared) if measured and shared else None
            return self._book.advance(series, owners, value, times, granted)

        def peek(series: bytes, value: bytes) -> list[bytes]:
            return self._book.peek(series, owners, value)

        return Rows((*rows, self._idle_row), values, peek)

    def _of_holder(self, holder: Holder, subject: Subject) -> Row:
        """The row of a holder.

        If the page names the same pod, the page's uid and pod labels fill in missing ones.
        """
        owner = holder.owner
        of_pod = self._of_pods.get(owner.pod_key, NOTHING)
        uid = of_pod.uid
        pod_labels = of_pod.labels
        labels = (*labels_of_uid(uid), *pod_labels, *labels_of_claim(holder.claim))
        came_with = subject.came_with
        if came_with is not None and came_with.pod_key == owner.pod_key:
            names = {name for name, _ in labels}
            came = (*labels_of_uid(subject.came_with_uid), *subject.came_extra)
            kept = tuple(label for label in came if label[0] not in names)
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


def _granted(holders: Sequence[Holder]) -> Sequence[int] | None:
    """The proportions in which holders were granted the device; None if they are not known of all."""
    return weights_of([holder.grant for holder in holders]) if len(holders) > 1 else None


def _are_shares(holders: Sequence[Holder]) -> bool:
    return any(holder.shared for holder in holders)


_AS_IT_CAME = Rows((Row(labels=()),))

"""The devices that the kubelet's device ids and DRA claims refer to.

A table of rules reads the ids of ContainerDevices.device_ids. A rule fits if its glob matches the resource and its
pattern matches the whole id; the first rule that fits counts. A user's rules come before the built-in ones. A pattern
names parts of an id:

- `uuid`: a GPU's UUID, `mig`: a MIG instance's own UUID;
- `device`: a GPU's name (the samples' label `device`), `index`: its number (the label `gpu`);
- `instance`: a MIG instance's number on that GPU (GPU_I_ID);
- `share`: present where the id means one share of a device (time slicing, MPS); its text does not matter.

A user's file (`--device-rules`) adds rules, and labels that name a sample's device:

    devices:
    - resource: gpu.intel.com/*
      id: '(?P<device>card[0-9]+)-(?P<share>[0-9]+)'
    samples:
      device: [dev_file]
    families:
    - {family: xpum_power_watts, field: DCGM_FI_DEV_POWER_USAGE, unit: W}
    looks: [gpu.intel.com/i915_monitoring]

`families` are read by `exporter.dcgm.vendors`, and a section `allocators` by allocators/users.py. `looks` are resources
(globs) whose ids only let a container look at devices, as monitoring does. A container holds no device by such an id.

For a device that came through Dynamic Resource Allocation the kubelet names driver, pool and device, and the qualified
name of its CDI device. Three things tell which GPU it is: the CDI spec of that name, which has its device nodes
(NVIDIA's DRA driver writes a spec for each claim); a UUID in that name; and the attributes of the device in the
driver's ResourceSlice.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase

from exporter.dcgm.vendors import VendorFamily, read_families
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import NO_PLACES, CdiPlaces, Claim, ResourceSlice, SliceDevices
from exporter.ownership.allocators.allocator_table import ALLOCATORS, Allocator
from exporter.ownership.allocators.users import read_allocators
from exporter.ownership.labels import SampleLabels
from exporter.reading import Invalid, compiled

PARTS = frozenset({"uuid", "mig", "device", "index", "instance", "share"})
# An id names a device only if its pattern has at least one of these groups.
NAMING_PARTS = frozenset({"uuid", "mig", "device", "index"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of a device id. `uuid_prefix` and the group `uuid` together are the UUID that samples carry.

    `allocator` is the allocator whose token an id of this form is (allocators/allocator_table.py); "" for an id that
    names its device.
    `is_look`: a container with such an id looks at devices and holds none.
    """

    form: str
    pattern: re.Pattern[str]
    resource: str = "*"
    uuid_prefix: str = ""
    allocator: str = ""
    is_look: bool = False


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_SHARE = r"(?P<share>::.*)?"


def _token_rules(allocators: Iterable[Allocator], *, uuid_prefix: str = "") -> Iterable[Rule]:
    """The rules for the ids that are tokens."""
    return (
        Rule(f"a token of {allocator.name}", compiled(pattern), resource, uuid_prefix, allocator.name)
        for allocator in allocators
        for resource, pattern in allocator.tokens
    )


RULES = (
    *_token_rules(ALLOCATORS.values(), uuid_prefix="GPU-"),
    Rule("GPU-<uuid>, GPU-<uuid>::<n>", re.compile(rf"(?P<uuid>GPU-[^:/\s]+){_SHARE}")),
    Rule("<uuid>, <uuid>::<n>", re.compile(rf"(?P<uuid>{_UUID}){_SHARE}"), uuid_prefix="GPU-"),
    # drivers before R470 named an instance by three things: its GPU, its GPU instance id and its compute instance id
    Rule("MIG-GPU-<uuid>/<gi>/<ci>", re.compile(rf"MIG-(?P<uuid>GPU-[^:/\s]+)/(?P<instance>[0-9]+)/[0-9]+{_SHARE}")),
    Rule("MIG-<uuid>, MIG-<uuid>::<n>", re.compile(rf"(?P<mig>MIG-(?!GPU-)[^:/\s]+){_SHARE}")),
    Rule(
        "nvidia<N>, nvidia<N>/gi<M>, /vgpu<K>",
        re.compile(r"(?P<device>nvidia(?P<index>[0-9]+))(?:/gi(?P<instance>[0-9]+))?(?P<share>/vgpu[0-9]+)?"),
    ),
    Rule("<N>/vgpu", re.compile(r"(?P<index>[0-9]+)(?P<share>/vgpu)")),
    # NVIDIA's plugin for KubeVirt offers IOMMU groups. Its resources have the names of PCI's list, in capitals.
    Rule("<IOMMU group> of an NVSwitch", re.compile(r"[0-9]+"), resource="nvidia.com/[A-Z]*NVSWITCH*"),
    Rule("<IOMMU group>", re.compile(r"(?P<vfio>[0-9]+)"), resource="nvidia.com/[A-Z]*"),
)


def read_device_id(resource: str, device_id: str, rules: Sequence[Rule] = RULES) -> DeviceRef | None:
    """The device that `device_id` refers to, by the first rule that matches; None if no rule matches."""
    for rule in rules:
        match = rule.pattern.fullmatch(device_id)
        if match and fnmatchcase(resource, rule.resource):
            parts = {name: text for name, text in match.groupdict().items() if text is not None}
            shared = parts.pop("share", None) is not None
            group = parts.pop("vfio", "")
            if group:
                parts["device"] = f"vfio/{group}"  # the GPU's device node, below /dev
            if "uuid" in parts:
                parts["uuid"] = rule.uuid_prefix + parts["uuid"]
            return DeviceRef(
                form=rule.form,
                shared=shared,
                is_vfio=bool(group),
                is_look=rule.is_look,
                allocator=rule.allocator,
                **parts,
            )
    return None


_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SECTIONS = frozenset({"devices", "samples", "families", "looks", "allocators"})
_ANY_ID = re.compile(r".*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRules:
    """The rules for ids, the labels of samples, the families that are fields of DCGM's, and the user's allocators."""

    rules: tuple[Rule, ...] = RULES
    sample_labels: SampleLabels = field(default_factory=SampleLabels)
    families: tuple[VendorFamily, ...] = ()
    allocators: tuple[Allocator, ...] = ()

    @property
    def every_allocator(self) -> Mapping[str, Allocator]:
        """All allocators by name: the user's, then those of the table."""
        return {allocator.name: allocator for allocator in (*self.allocators, *ALLOCATORS.values())}


def read_rules(content: object) -> DeviceRules:
    """The rules that a parsed YAML or JSON file describes.

    Raises ValueError: the file has another form; one line that says what is wrong, and where.
    """
    if not isinstance(content, Mapping) or not content.keys() <= _SECTIONS or not content:
        raise ValueError(
            "it must hold `devices` (rules for ids), `samples` (labels), `families` (fields), `looks` (resources),"
            " `allocators`, or several"
        )
    devices = content.get("devices") or []
    samples = content.get("samples") or {}
    if not isinstance(devices, list):
        raise ValueError("`devices` must be a list of rules, each with `resource` and `id`")  # noqa: TRY004 - the caller words it
    if not isinstance(samples, Mapping):
        raise ValueError("`samples` must hold lists of labels by part")  # noqa: TRY004 - see above
    try:
        families = read_families(content.get("families") or [])
    except Invalid as error:
        raise ValueError(str(error)) from error
    looks = _looks(content.get("looks") or [])
    rules = [_rule(rule, f"devices[{number}]") for number, rule in enumerate(devices)]
    allocators = read_allocators(content.get("allocators") or [])
    return DeviceRules(
        rules=(*looks, *rules, *_token_rules(allocators), *RULES),
        sample_labels=_sample_labels(samples),
        families=families,
        allocators=allocators,
    )


def _looks(content: object) -> tuple[Rule, ...]:
    if not isinstance(content, list) or not all(isinstance(resource, str) and resource for resource in content):
        raise ValueError("`looks` must be a list of resources (globs) whose ids only let a container look at devices")
    return tuple(Rule(f"{resource} (a look)", _ANY_ID, resource=resource, is_look=True) for resource in content)


def _rule(content: object, where: str) -> Rule:
    """A user's rule for ids. Raises ValueError: it has another form."""
    if not isinstance(content, Mapping) or content.keys() != {"resource", "id"}:
        raise ValueError(f"{where} must hold `resource` (a glob) and `id` (a regular expression)")
    resource = content["resource"]
    text = content["id"]
    if not isinstance(resource, str) or not isinstance(text, str) or not resource:
        raise ValueError(f"{where}: `resource` and `id` must be texts")
    try:
        pattern = compiled(text)
    except re.error as error:
        raise ValueError(f"{where}.id: {text!r} is no regular expression: {error}") from error
    parts = set(pattern.groupindex)
    if not parts & NAMING_PARTS or not parts <= PARTS:
        raise ValueError(
            f"{where}.id: {text!r} must name what it finds, (?P<uuid>…), with one of {', '.join(sorted(NAMING_PARTS))},"
            f" and no other names than {', '.join(sorted(PARTS))}"
        )
    return Rule(f"{resource} {text}", pattern, resource=resource)


def _sample_labels(content: Mapping[object, object]) -> SampleLabels:
    """The labels that name a device's parts: a user's, then the built-in ones. Raises ValueError: another form."""
    parts = {part.name for part in fields(SampleLabels)}
    built_in = SampleLabels()
    given: dict[str, tuple[str, ...]] = {}
    for part, labels in content.items():
        if not isinstance(part, str) or part not in parts:
            raise ValueError(f"samples: {part!r} is not known; the parts are {', '.join(sorted(parts))}")
        if not isinstance(labels, list) or not all(
            isinstance(label, str) and _LABEL_NAME.fullmatch(label) for label in labels
        ):
            raise ValueError(f"samples.{part}: {labels!r} must be a list of label names")
        given[part] = tuple(labels)
    # a label has one meaning: if a user names it for one part, it no longer counts for another part
    taken = {label for labels in given.values() for label in labels}
    for part in parts:
        free = [label for label in getattr(built_in, part) if label not in taken]
        given[part] = (*given.get(part, ()), *free)
    return SampleLabels(**given)


# A UUID counts only with its prefix: k8s.gpu.nvidia.com/claim=<uuid>-gpu-0 has the claim's UUID, not a GPU's.
_UUID_IN_CDI_NAME = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


CDI_SPEC = "CDI spec"
DRA_DRIVERS = ("gpu.nvidia.com",)


def read_claim(claim: Claim, slices: SliceDevices, places: CdiPlaces = NO_PLACES) -> DeviceRef | None:
    """A claim's GPU or MIG instance; None if nothing says it, or if its CDI names have several UUIDs.

    If a CDI spec says it, the answer has the ResourceSlice's word, too, since the two may contradict each other.
    """
    ref = _read_claim(claim, slices)
    of_names = set(filter(None, map(places.get, claim.cdi_names)))
    if len(of_names) != 1:
        return ref
    (place,) = of_names
    if not place.minor and claim.driver in DRA_DRIVERS:
        return _vfio(claim, CDI_SPEC)
    if ref is not None and not place.minor:
        return ref  # another vendor's GPU
    if ref is None:
        return DeviceRef(form=CDI_SPEC, minor=place.minor, instance=place.instance, shared=bool(claim.share))
    return replace(ref, form=CDI_SPEC, minor=place.minor, instance=place.instance)


def _read_claim(claim: Claim, slices: SliceDevices) -> DeviceRef | None:
    """The device of a claim: by ResourceSlices, else by a UUID in its CDI names. None if neither names one device."""
    form = "DRA driver/pool/device"
    shared = bool(claim.share)
    device = slices.get(claim.slice_name)
    if device is not None and device.kind == "vfio":
        return _vfio(claim, form)
    if device is not None and device.uuid:
        if device.kind == "mig" or device.uuid.startswith("MIG-"):
            return DeviceRef(
                form=form, mig=device.uuid, parent=device.parent_uuid, profile=device.profile, shared=shared
            )
        return DeviceRef(form=form, uuid=device.uuid, shared=shared)
    matches = filter(None, map(_UUID_IN_CDI_NAME.search, claim.cdi_names))
    uuids = {match[0] for match in matches}
    # the CDI names of a MIG instance may also name its GPU
    uuids = {uuid for uuid in uuids if uuid.startswith("MIG-")} or uuids
    if len(uuids) != 1:
        return None
    (uuid,) = uuids
    form = "CDI name with a UUID"
    if uuid.startswith("MIG-"):
        return DeviceRef(form=form, mig=uuid, shared=shared)
    return DeviceRef(form=form, uuid=uuid, shared=shared)


def _vfio(claim: Claim, form: str) -> DeviceRef:
    """A virtual machine's GPU, by its name (gpu-vfio-3): a CDI spec, unlike a ResourceSlice, has no UUID for it."""
    return DeviceRef(form=form, device=claim.device, is_vfio=True)


def complete_pools(slices: Iterable[ResourceSlice]) -> Mapping[tuple[str, str], Sequence[ResourceSlice]]:
    """The slices of each complete pool, by driver and pool; an incomplete pool is left out.

    A driver that renews a pool publishes slices of the next generation while the old ones are still there. So the
    slices of a pool are those of its highest generation that is complete (pool.resourceSliceCount).
    """
    by_generation: dict[tuple[str, str, int], list[ResourceSlice]] = {}
    for part in slices:
        by_generation.setdefault((part.driver, part.pool, part.generation), []).append(part)
    pools: dict[tuple[str, str], Sequence[ResourceSlice]] = {}
    for driver, pool, generation in sorted(by_generation):
        parts = by_generation[driver, pool, generation]
        if len(parts) >= parts[0].slice_count:
            pools[driver, pool] = parts
    return pools


def devices_of(pools: Mapping[tuple[str, str], Sequence[ResourceSlice]]) -> SliceDevices:
    """The devices of complete pools, by driver, pool and device."""
    return {
        (driver, pool, name): device
        for (driver, pool), slices in pools.items()
        for resource_slice in slices
        for name, device in resource_slice.devices.items()
    }

"""`doctor --conformance`: the evidence that one exporter has for Kubernetes' AI conformance. Pure.

https://github.com/cncf/k8s-ai-conformance has the form that a platform hands in as PRODUCT.yaml, and the program that
reads it (scripts/validate.go). https://github.com/kubernetes-sigs/ai-conformance describes each requirement, as KAR-….
The evidence has the form's fields for the requirements that an exporter can see, so that they can be copied into
a PRODUCT.yaml. Under `observed`, which is no part of the form, it has the facts on which they rest. The descriptions
are this program's own, since those of the form depend on the version of Kubernetes.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from exporter.dcgm.fields import FIELDS
from exporter.dividing.decimals import is_amount
from exporter.doctor.as_tested import QuestionOfTest, questions
from exporter.exposition.families import unescape
from exporter.exposition.lines import Reason, SampleLine, read_line, split_lines
from exporter.lenient import AnyObject
from exporter.model.device_row import DeviceUser
from exporter.outputs.diagnosis import MOST_NAMED, Finding, fine, problem
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import WITHOUT_SAMPLES
from exporter.wording import listed

_DONE = "Implemented"
_PARTLY = "Partially Implemented"
_NOT = "Not Implemented"
_UNJUDGED = ""
# fields of the form up to Kubernetes 1.37 that only the platform can fill in
_OF_PLATFORM = "kubernetesVersion platformName platformVersion vendorName websiteUrl repoUrl documentationUrl"
_OF_PLATFORM += " productLogoUrl description contactEmailAddress k8sConformanceUrl"
_LONGEST_EXCERPT = 500
_METRICS_ASKED = (
    "for each accelerator utilization and memory usage and, where the hardware has them, temperature, power draw and"
    " interconnect bandwidth, in a standard format for machines"
)
# for each requirement: its category in the form, its level, and its text
_ASKED = {
    "dra_support": "accelerators MUST KAR-0051: workloads claim devices by DRA's APIs (resource.k8s.io/v1)",
    "gpu_sharing": "accelerators SHOULD KAR-0003: Kubernetes can hand out less than a whole accelerator",
    "accelerator_metrics": f"observability MUST KAR-0059: {_METRICS_ASKED}",
    "secure_accelerator_access": "security MUST KAR-0049: only containers that Kubernetes gave an accelerator reach it",
}


class _Quantity(NamedTuple):
    """A metric of KAR-0059, OpenTelemetry's name for it, and the rows of DCGM's table that have it.

    A core metric is required for each device, another one for each GPU whose hardware measures it.
    """

    name: str
    otel: str
    rows: tuple[str, ...]
    is_core: bool = False


_QUANTITIES = (
    _Quantity("utilization", "hw.gpu.utilization", ("DEV_GPU_UTIL", "PROF_GR_ENGINE_ACTIVE"), is_core=True),
    _Quantity("memory usage", "hw.gpu.memory.usage", ("DEV_FB_USED",), is_core=True),
    _Quantity("temperature", "hw.temperature", ("DEV_GPU_TEMP",)),
    _Quantity("power draw", "hw.power", ("DEV_POWER_USAGE", "DEV_POWER_USAGE_INSTANT")),
    _Quantity(
        "interconnect bandwidth",
        "hw.gpu.io",
        ("PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES", "PROF_NVLINK_TX_BYTES", "DEV_NVLINK_BANDWIDTH_TOTAL"),
    ),
)
_QUANTITY_OF = {name: quantity for name, row in FIELDS.items() for quantity in _QUANTITIES if row.name in quantity.rows}
# the names that the automated test's flag for a required quantity may get, by the test's word for the quantity
_NAMES_ASKED = {
    asked: [name for name, quantity in _QUANTITY_OF.items() if quantity.name == ours]
    for asked, ours in (("utilization", "utilization"), ("memory", "memory usage"))
}
_LABELS = LabelPolicy()
_Device = tuple[str, str]  # a GPU's UUID (else its name or number) without "GPU-", and the MIG instance's id


@dataclass(frozen=True, slots=True)
class JudgedRequirement:
    """The judgement of a requirement. `status` is the form's word, "" if the requirement cannot be judged.

    `asked` are the questions of an automated test about it.
    """

    id: str
    status: str
    why: str
    remedy: str
    seen: AnyObject
    asked: tuple[QuestionOfTest, ...] = ()

    @property
    def category(self) -> str:
        """The form's word for the requirement's subject, such as observability."""
        return _ASKED[self.id].partition(" ")[0]

    @property
    def finding(self) -> Finding:
        """The judgement as a line of doctor's report: a problem, unless it is implemented or cannot be judged."""
        if self.status in (_DONE, _UNJUDGED):
            return fine(self.id, self.why if self.status else f"not judged: {self.why}")
        return problem(self.id, self.why, self.remedy)


def judge(where: str, pages: Mapping[str, bytes]) -> tuple[JudgedRequirement, ...]:
    """Judge an exporter by its pages, which are named as the files in doctor's bundle.

    Raises:
        KeyError, TypeError, ValueError: the mapping is that of another version.
    """
    mapping = json.loads(pages["mapping.json"])
    return (
        _dra(mapping["assigned"]),
        _sharing(mapping["assigned"]),
        _metrics(where, pages["gpu-metrics.prom"], pages["metrics.prom"], _accelerators(mapping)),
        _access(f"{where}/metrics", pages["metrics.prom"], mapping),
    )


def as_form(
    judged: Sequence[JudgedRequirement], *, where: str, version: str, moment: str, files: Sequence[str]
) -> dict[str, Any]:
    """The evidence in the form of a PRODUCT.yaml.

    Args:
        judged: the judged requirements.
        where: the exporter's URL, or words for doctor in its place.
        version: the exporter's version.
        moment: the time, in ISO 8601, in UTC.
        files: the names of the files of evidence, which lie beside the PRODUCT.yaml.
    """
    spec: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    observed = []
    for requirement in judged:
        category, level, asked = _ASKED[requirement.id].split(" ", 2)
        entry = {"id": requirement.id, "description": asked, "level": level, "status": requirement.status}
        spec[category].append({**entry, "evidence": [*files] if requirement.status else [], "notes": requirement.why})
        passed = {_DONE: True, _UNJUDGED: None}.get(requirement.status, False)
        observed.append(
            {"id": requirement.id, "asked": asked, "pass": passed, "why": requirement.why, "seen": requirement.seen}
        )
    return {
        "metadata": {name: f"[{name} of the platform]" for name in _OF_PLATFORM.split()},
        "spec": dict(spec),
        "observed": {"exporter": where, "version": version, "at": moment, "requirements": observed},
    }


def _accelerators(mapping: AnyObject) -> frozenset[_Device]:
    """All devices that samples or the inventory name. A MIG GPU is counted by its instances."""
    devices = {_device(seen["uuid"] or seen["device"] or seen["gpu"], seen["gpu_i_id"]) for seen in mapping["seen"]}
    if not any(uuid.startswith("MIG-") for uuid, _ in devices):  # else instances are there under other names
        for gpu in mapping["inventory"]["gpus"]:
            devices |= {_device(gpu["uuid"], instance) for instance in ("", *(mig["gpu_i_id"] for mig in gpu["mig"]))}
    cut = {gpu for gpu, instance in devices if instance}
    return frozenset(device for device in devices if device[1] or device[0] not in cut)


def _device(gpu: str, instance: str) -> _Device:
    return gpu.removeprefix("GPU-"), instance


def _samples(body: bytes, families: Container[str]) -> Iterator[tuple[str, Mapping[str, str], bytes, bytes]]:
    """The samples of these families: name, labels, value and the whole line."""
    for line in split_lines(body):
        sample = read_line(line)
        if isinstance(sample, SampleLine) and (name := sample.name.decode()) in families:
            yield name, {label.decode(): unescape(text) for label, text in sample.labels}, sample.value, line


def _metrics(where: str, body: bytes, own: bytes, devices: frozenset[_Device]) -> JudgedRequirement:
    """Whether each accelerator has the required metrics: `body` is the page, `own` the exporter's /metrics."""
    url = f"{where}/gpu/metrics"
    measured: defaultdict[_Quantity, set[_Device]] = defaultdict(set)
    families: defaultdict[_Quantity, Counter[str]] = defaultdict(Counter)
    excerpt: dict[str, str] = {}
    for name, labels, value, line in _samples(body, _QUANTITY_OF):
        if is_amount(value):  # not one of DCGM's values for "not supported"
            subject = _LABELS.read_subject(labels)
            quantity = _QUANTITY_OF[name]
            measured[quantity].add(_device(subject.gpu, subject.instance))
            families[quantity][name] += 1
            excerpt.setdefault(name, line.decode()[:_LONGEST_EXCERPT])
    without = {quantity: _without(quantity, devices, measured[quantity]) for quantity in _QUANTITIES}
    asked = questions(body, _NAMES_ASKED)
    unreadable = sum(isinstance(read_line(line), Reason) for line in split_lines(body))
    if not devices or unreadable:
        status = _NOT
        remedy = "see what doctor says of its sources"
        why = f"{url} has samples of {len(devices)} accelerators, and {unreadable} lines that are no metric"
    else:
        status, why, remedy = _verdict(len(devices), without, asked)
    metrics = [
        {
            "name": quantity.name,
            "opentelemetry": quantity.otel,
            "samples": dict(families[quantity]),
            "missing_for": without[quantity],
        }
        for quantity in _QUANTITIES
    ]
    seen = {"url": url, "lines": len(split_lines(body)), "unreadable_lines": unreadable, "accelerators": len(devices)}
    tested = {"/gpu/metrics": _as_tested(asked), "/metrics": _as_tested(questions(own, _NAMES_ASKED))}
    seen |= {"metrics": metrics, "automated_test": tested, "excerpt": [*excerpt.values()]}
    return JudgedRequirement("accelerator_metrics", status, why, remedy, seen, asked)


def _verdict(
    devices: int, without: Mapping[_Quantity, Sequence[str]], asked: Sequence[QuestionOfTest]
) -> tuple[str, str, str]:
    """Status, reason and remedy of KAR-0059 for a page that can be read."""
    missing = [quantity for quantity in _QUANTITIES if without[quantity]]
    not_found = [question for question in asked if question.is_required and not question.is_passed]
    if not missing and not not_found:
        return _DONE, f"{devices} accelerators have {', '.join(quantity.name for quantity in _QUANTITIES)}", ""
    status = _NOT if any(quantity.is_core for quantity in missing) else _PARTLY
    whys = []
    remedies = []
    if missing:
        lacking = (f"{quantity.name} ({len(without[quantity])} of {devices} accelerators)" for quantity in missing)
        whys.append(f"missing: {', '.join(lacking)}")
        names = ", ".join(f"DCGM_FI_{quantity.rows[0]}" for quantity in missing)
        not_measured = "what the hardware cannot measure belongs in the form's notes"
        remedies.append(f"have dcgm-exporter measure {names}; {not_measured}")
    if not_found:
        whys.append(f"the automated test finds {', '.join(question.why_not for question in not_found)}")
        remedies += _flags_for(not_found)
    return status, "; ".join(whys), "; ".join(remedies)


def _flags_for(not_found: Sequence[QuestionOfTest]) -> list[str]:
    """The advice to run the automated test with flags with which it finds these; none if no flag helps."""
    flags = [question.flag for question in not_found if question.flag]
    return [f"give the test {' '.join(flags)}, with dcgm-exporter's Service"] if flags else []


def _as_tested(asked: Sequence[QuestionOfTest]) -> list[dict[str, Any]]:
    """The automated test's questions with their answers, for `observed`."""
    return [
        {
            "asks": question.quantity,
            "required": question.is_required,
            "pass": question.is_passed,
            "families": dict(question.families),
            "flag": question.flag,
        }
        for question in asked
    ]


def _without(quantity: _Quantity, devices: frozenset[_Device], measured: set[_Device]) -> list[str]:
    """The devices that lack a metric.

    Temperature, power and bandwidth are those of the whole GPU, so a sample of any of its instances is enough.
    """
    lacking = devices - measured
    if not quantity.is_core:
        gpus = {gpu for gpu, _ in measured}
        lacking = frozenset(device for device in lacking if device[0] not in gpus and not device[0].startswith("MIG-"))
    return [f"{gpu} instance {instance}" if instance else gpu for gpu, instance in sorted(lacking)]


def _dra(assigned: Sequence[AnyObject]) -> JudgedRequirement:
    """Whether each device of a claim has its holder."""
    claimed = [assignment for assignment in assigned if assignment["claim"]]
    names = sorted({assignment["claim"] for assignment in claimed})
    lost = sorted(
        {
            assignment["claim"]
            for assignment in claimed
            if not assignment["matched"] and assignment["reason"] not in WITHOUT_SAMPLES
        }
    )
    status = _UNJUDGED
    why = "no container here holds a device by a claim; ask where one does"
    if claimed:
        of_lost = f"no holder was made out for {listed(lost, MOST_NAMED)}" if lost else "each has its holder"
        status = _PARTLY if lost else _DONE
        why = f"the kubelet lists {len(claimed)} devices of {len(names)} claims: {of_lost}"
    seen = {
        "claims": names,
        "devices": [f"{assignment['device_id']} -> {assignment['uuid']}" for assignment in claimed],
    }
    return JudgedRequirement("dra_support", status, why, "see what doctor says of these claims", seen)


def _sharing(assigned: Sequence[AnyObject]) -> JudgedRequirement:
    parts = [assignment for assignment in assigned if assignment["shared"] or assignment["gpu_i_id"]]
    resources = sorted({part["resource"] for part in parts})
    why = f"containers hold {len(parts)} parts of accelerators: {', '.join(resources)}"
    if not parts:
        return JudgedRequirement("gpu_sharing", _UNJUDGED, "no container here holds a part of an accelerator", "", {})
    return JudgedRequirement("gpu_sharing", _DONE, why, "", {"resources": resources})


def _access(url: str, body: bytes, mapping: AnyObject) -> JudgedRequirement:
    """Whether only holders use accelerators, by the exporter's own page and /debug/mapping."""
    fields = {"pod_gpu_memory_used_bytes": "memory_used_bytes", "pod_gpu_utilization_ratio": "utilization_ratio"}
    used: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, labels, value, _ in _samples(body, fields):
        if labels.get("holds") == "false":
            who = "{namespace}/{pod}/{container} on {UUID} {GPU_I_ID}".format_map(defaultdict(str, labels))
            used[who.rstrip()][fields[name]] = float(value)
    strangers = sorted(who for who, amounts in used.items() if DeviceUser(**amounts).is_at_work())
    status = _UNJUDGED
    why = "no container uses an accelerator that it does not hold, which alone proves nothing"
    if strangers:
        status = _NOT
        why = f"used by containers that do not hold them: {listed(strangers, MOST_NAMED)}"
    elif mapping.get("unmeasured") or mapping.get("processes_of_nobody") is None:
        why = "which processes use the accelerators is not measured here (--nvml.mode)"
    remedy = "see what doctor says of these accelerators"
    seen = {"url": url, "used_without_holding": strangers}
    return JudgedRequirement("secure_accelerator_access", status, why, remedy, seen)

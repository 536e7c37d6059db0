"""Recordings: a small one as doctor makes it, and any that the types allow."""

from hypothesis import strategies as st

from exporter.bundle.recording import Absence, PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.errors import Trouble

PAGE = b'# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization.\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} 7\n'


def small_moment(at_seconds: float, page: bytes = PAGE) -> RecordedMoment:
    return RecordedMoment(
        at_seconds=at_seconds,
        answers=(
            PeerAnswer(peer="page", name="dcgm", question="http://localhost:9400/metrics", body=page),
            PeerAnswer(peer="kubelet", name="kubelet", question="v1.PodResourcesLister/List", body=b"\n\x05pod-1"),
            PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=b'{"items": []}'),
            PeerAnswer(
                peer="kubelet",
                name="kubelet",
                question="v1.PodResourcesLister/GetAllocatableResources",
                trouble=Trouble("unimplemented", "it does not know the method", "none"),
            ),
        ),
        files={"root/proc/driver/nvidia/version": b"NVRM version: 570", "root/dev/.hidden": b"", "inventory": b"[]"},
        calls=(
            RecordedCall(function="nvmlInit_v2"),
            RecordedCall(function="nvmlDeviceGetSerial", arguments=("nvmlDeviceGetHandleByIndex(0)",), code=3),
            RecordedCall(
                function="nvmlDeviceGetMemoryInfo", result={"total": 2**36, "free": 0.5, "names": ["a", None]}
            ),
        ),
        kernel_log=("4,1,2,-;NVRM: Xid (PCI:0000:01:00): 79", "second"),
        outputs={"/gpu/metrics": page, "/debug/mapping": b'{"doctor": {}}', "/": b"<html>", "/events": b""},
    )


SMALL = Recording(
    made_by="9.9.9",
    settings={"dcgm.url": ("http://a", "http://b"), "web.trace": ("on",)},
    moments=(small_moment(1_790_000_000.25), small_moment(1_790_000_005.5)),
    report="ok  dcgm  12 samples\n",
    of_exporter={"/gpu/metrics": PAGE, "/debug/log": b"ts=1 msg=x\n"},
    log=("ts=1 level=info msg=listening", 'ts=2 level=warning msg="source failed"'),
    versions={"python": "3.13", "kernel": "6.8"},
    absences=(Absence(what="the running exporter", why=Trouble("refused", "nothing listens", "start it")),),
    is_plain=False,
)

_TEXTS = st.text(max_size=30)  # also lone surrogates, as Python makes them of names that are no UTF-8
_LINES = st.lists(st.text(st.characters(exclude_characters="\n"), max_size=20), max_size=4).map(tuple)
_CONTENTS = st.binary(max_size=40)
_PATHS = st.one_of(_TEXTS, st.sampled_from(["/a", "/A", "a", "root/a/b", "root/../a", "..", "x" * 300, "con.prom"]))
_TROUBLES = st.builds(Trouble, _TEXTS, _TEXTS, _TEXTS)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)
_CALLS = st.builds(
    RecordedCall,
    function=_TEXTS,
    arguments=st.lists(_JSON, max_size=3).map(tuple),
    result=_JSON,
    code=st.integers(-(2**31), 2**31 - 1),
)
_ANSWERS = st.builds(
    PeerAnswer,
    peer=st.sampled_from(["page", "kubelet", "pods", "kubernetes"]),
    name=_TEXTS,
    question=_TEXTS,
    body=_CONTENTS,
    trouble=st.none() | _TROUBLES,
)
_MOMENTS = st.builds(
    RecordedMoment,
    at_seconds=st.floats(0, 1e11),
    answers=st.lists(_ANSWERS, max_size=3).map(tuple),
    files=st.dictionaries(_PATHS, _CONTENTS, max_size=3),
    calls=st.lists(_CALLS, max_size=2).map(tuple),
    kernel_log=_LINES,
    outputs=st.dictionaries(_PATHS, _CONTENTS, max_size=3),
)
RECORDINGS = st.builds(
    Recording,
    made_by=_TEXTS,
    settings=st.dictionaries(_TEXTS, st.lists(_TEXTS, max_size=3).map(tuple), max_size=3),
    moments=st.lists(_MOMENTS, min_size=1, max_size=3).map(tuple),
    node=_TEXTS,
    report=_TEXTS,
    of_exporter=st.dictionaries(_PATHS, _CONTENTS, max_size=3),
    log=_LINES,
    versions=st.dictionaries(_TEXTS, _TEXTS, max_size=3),
    absences=st.lists(st.builds(Absence, what=_TEXTS, why=_TROUBLES), max_size=2).map(tuple),
    is_plain=st.booleans(),
)

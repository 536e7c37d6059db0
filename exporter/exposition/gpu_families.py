"""A page less the families that are not of GPUs: what is taken from a dcgm-exporter that was found, not named. Pure.

Such a page comes from a pod, which could bring `up`, `kube_pod_info` or anybody's accounts as well. dcgm-exporter
itself writes names that begin with DCGM_ (DCGM_FI_…, DCGM_EXP_…), and in its 1.x with dcgm_.
"""

_NAMES = (b"DCGM_", b"dcgm_")
_STARTS = tuple(comment + name for comment in (b"", b"# HELP ", b"# TYPE ") for name in _NAMES)


def only_gpu_families(body: bytes) -> bytes:
    """The page with the lines of GPU families alone; the same object where there are no others.

    A comment that is neither HELP nor TYPE, or is written with other blanks than dcgm-exporter writes, is left out too:
    nothing is read from it.
    """
    text = b"\n" + body
    lines = text.count(b"\n") - text.endswith(b"\n")
    # counting costs half of going line by line, and the page stays the same object
    if sum(text.count(b"\n" + start) for start in _STARTS) == lines:
        return body
    return b"".join(line for line in body.splitlines(keepends=True) if line.startswith(_STARTS))

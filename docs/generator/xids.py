"""docs/xids.md: the XIDs that data centres see, as the exporter knows them."""

from docs.generator.markdown import document, prose, table
from exporter.dcgm.xids import OTHER_XID, XIDS, verdict_of

_INTRO = """\
An XID is an error that NVIDIA's driver reports. The names are dcgm-exporter's; causes and remedies are by NVIDIA's
[catalogue](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), in short. `verdict` is what an XID
makes of [its GPU](health.md): [GpuFailing](alerts.md#gpufailing) wakes somebody for `gone` and `failing`, and
[GpuDegraded](alerts.md#gpudegraded) for `degraded`. With `ok` the GPU is well: mostly the program is not. The text of
an error may make it worse: NVLink's say since Blackwell whether they are fatal."""
_HEADS = ("XID", "name", "usual cause", "what to do", "verdict")


def page() -> str:
    """The page."""
    rows = [
        (str(code), prose(xid.name), prose(xid.cause), prose(xid.remedy), verdict_of(code))
        for code, xid in sorted(XIDS.items())
        if code
    ]
    other = ("any other", prose(OTHER_XID.name), "", prose(OTHER_XID.remedy), verdict_of(-1))
    return document("XIDs", _INTRO, table(_HEADS, (*rows, other)))

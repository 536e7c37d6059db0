"""Reading an inventory file: the node's GPUs and how they are cut into MIG instances.

`{"gpus": [{"uuid": "GPU-…", "index": 0, "mig": [{"uuid": "MIG-…", "instance_id": 3, "profile": "1g.10gb"}]}]}`

A GPU may also have a `device`: the name under which a device plugin hands it out, where the samples carry only another
name (Intel's card1 is pci_bdf 0000:4d:00.0).
"""

from collections.abc import Mapping

from exporter.model.devices import Inventory, InventoryGpu, MigInstance


def read_inventory(content: object) -> Inventory:
    """The `Inventory` that a parsed YAML or JSON file describes.

    Raises:
        ValueError: the file has another form, or names a UUID twice; one line that says where.
    """
    top = _fields(content, "the file", required={"gpus"})
    inventory = Inventory(gpus=tuple(_gpu(gpu, f"gpus[{i}]") for i, gpu in enumerate(_list(top["gpus"], "gpus"))))
    seen: set[str] = set()
    for uuid in [gpu.uuid for gpu in inventory.gpus] + [mig.uuid for gpu in inventory.gpus for mig in gpu.mig]:
        if uuid in seen:
            raise ValueError(f"{uuid} is there twice; name each GPU and each MIG instance once")
        seen.add(uuid)
    return inventory


def _gpu(content: object, where: str) -> InventoryGpu:
    gpu = _fields(content, where, required={"uuid"}, optional={"device", "index", "mig"})
    return InventoryGpu(
        uuid=_text(gpu["uuid"], f"{where}.uuid"),
        index=_number(gpu["index"], f"{where}.index") if gpu.get("index") is not None else "",
        device=_text(gpu["device"], f"{where}.device") if gpu.get("device") is not None else "",
        mig=tuple(_mig(mig, f"{where}.mig[{i}]") for i, mig in enumerate(_list(gpu.get("mig") or [], f"{where}.mig"))),
    )


def _mig(content: object, where: str) -> MigInstance:
    mig = _fields(content, where, required={"uuid", "instance_id"}, optional={"profile"})
    return MigInstance(
        uuid=_text(mig["uuid"], f"{where}.uuid"),
        instance_id=_number(mig["instance_id"], f"{where}.instance_id"),
        profile=_text(mig["profile"], f"{where}.profile") if mig.get("profile") else "",
    )


def _fields(
    content: object, where: str, *, required: set[str], optional: frozenset[str] | set[str] = frozenset()
) -> Mapping[str, object]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{where} must hold {', '.join(sorted(required))}")  # noqa: TRY004 - the caller words it
    for name in required - content.keys():
        raise ValueError(f"{where} lacks {name}")
    for name in sorted(content.keys() - required - optional, key=str):
        raise ValueError(
            f"{where} has {name!r}, which is not known; it may have {', '.join(sorted(required | optional))}"
        )
    return content


def _list(content: object, where: str) -> list[object]:
    if not isinstance(content, list):
        raise ValueError(f"{where} must be a list")  # noqa: TRY004 - see above
    return content


def _text(content: object, where: str) -> str:
    if not isinstance(content, str) or not content:
        raise ValueError(f"{where}: {content!r} must be a text")
    return content


def _number(content: object, where: str) -> str:
    """A whole number, written as a number or as text, as samples' labels write it: without leading zeros."""
    if isinstance(content, bool) or not isinstance(content, int | str) or not str(content).isdecimal():
        raise ValueError(f"{where}: {content!r} must be a number, 0 or more")
    return str(int(content))

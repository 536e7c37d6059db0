"""NVML by NVIDIA's bindings alone, where nvidia-smi is missing: its document, with the elements that are compared.

python -m tests.hardware.direct            the document, as `nvidia-smi -q -x` writes it
python -m tests.hardware.direct --calls    what each function nvmlDeviceGet… without further arguments answers, JSON
"""

import inspect
import json
import sys
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pynvml

Then = Callable[[Any], object]
_MIB = 1024**2
_V2 = 0x0200_0028  # nvmlMemory_v2
_NOT_AVAILABLE = "N/A"
_ECC = {"correctable": 0, "uncorrectable": 1}  # nvmlMemoryErrorType_t
_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clocks_setting",
)


def asked(name: str, *arguments: object, then: Then = str) -> str:
    """What a function answers, as text; N/A if it fails, or is not there."""
    try:
        return str(then(getattr(pynvml, name)(*arguments)))
    except (pynvml.NVMLError, AttributeError, UnicodeDecodeError):
        return _NOT_AVAILABLE


def document() -> ET.Element:
    """All GPUs, in the form of nvidia-smi."""
    root = ET.Element("nvidia_smi_log")
    _put(root, "driver_version", asked("nvmlSystemGetDriverVersion"))
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = ET.SubElement(root, "gpu", id=asked("nvmlDeviceGetPciInfo_v3", handle, then=lambda pci: pci.busId))
        for path, text in _texts(handle).items():
            _put(gpu, path, text)
        _processes(gpu, handle)
    return root


def _put(element: ET.Element, path: str, text: str) -> None:
    *folders, name = path.split("/")
    for folder in folders:
        below = element.find(folder)
        element = ET.SubElement(element, folder) if below is None else below
    ET.SubElement(element, name).text = text


def _texts(handle: object) -> dict[str, str]:
    """The texts of a GPU by the paths of their elements."""
    texts = {
        "product_name": asked("nvmlDeviceGetName", handle),
        "serial": asked("nvmlDeviceGetSerial", handle),
        "uuid": asked("nvmlDeviceGetUUID", handle),
        "minor_number": asked("nvmlDeviceGetMinorNumber", handle),
        "performance_state": asked("nvmlDeviceGetPerformanceState", handle, then="P{}".format),
        "temperature/gpu_temp": asked("nvmlDeviceGetTemperature", handle, 0, then="{} C".format),
        "temperature/memory_temp": asked("nvmlDeviceGetFieldValues", handle, [82], then=_celsius),
        "gpu_power_readings/average_power_draw": asked("nvmlDeviceGetPowerUsage", handle, then=_watts),
        "gpu_power_readings/current_power_limit": asked("nvmlDeviceGetEnforcedPowerLimit", handle, then=_watts),
        "clocks/sm_clock": asked("nvmlDeviceGetClockInfo", handle, 1, then="{} MHz".format),
        "clocks/mem_clock": asked("nvmlDeviceGetClockInfo", handle, 2, then="{} MHz".format),
        "utilization/encoder_util": asked("nvmlDeviceGetEncoderUtilization", handle, then=_place(0, "{} %".format)),
        "utilization/decoder_util": asked("nvmlDeviceGetDecoderUtilization", handle, then=_place(0, "{} %".format)),
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen": asked("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pci/pci_gpu_link_info/link_widths/current_link_width": asked(
            "nvmlDeviceGetCurrPcieLinkWidth", handle, then="{}x".format
        ),
        "pci/replay_counter": asked("nvmlDeviceGetPcieReplayCounter", handle),
        "retired_pages/pending_retirement": asked("nvmlDeviceGetRetiredPagesPendingStatus", handle, then=_yes),
    }
    for name in ("total", "reserved", "free", "used"):
        texts[f"fb_memory_usage/{name}"] = asked("nvmlDeviceGetMemoryInfo", handle, _V2, then=_mib_of(name))
    for place, name in enumerate(("corr", "unc", "pending", "failure")):
        then = _place(place, "{}".format if name in {"corr", "unc"} else _yes)
        texts[f"remapped_rows/remapped_row_{name}"] = asked("nvmlDeviceGetRemappedRows", handle, then=then)
    for name, kind in _ECC.items():
        texts[f"ecc_errors/volatile/dram_{name}"] = asked("nvmlDeviceGetTotalEccErrors", handle, kind, 0)
    for name in ("gpu", "memory"):
        texts[f"utilization/{name}_util"] = asked("nvmlDeviceGetUtilizationRates", handle, then=_percent_of(name))
    return texts | _reasons(handle)


def _reasons(handle: object) -> dict[str, str]:
    bits = asked("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if bits == _NOT_AVAILABLE:
        bits = asked("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if bits == _NOT_AVAILABLE:
        return {}
    states = {
        name: "Active" if int(bits) >> place & 1 else "Not Active"
        for name, place in zip(_REASONS, range(len(_REASONS)), strict=True)
    }
    return {f"clocks_event_reasons/clocks_event_reason_{name}": state for name, state in states.items()}


def _processes(gpu: ET.Element, handle: object) -> None:
    processes = ET.SubElement(gpu, "processes")
    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except pynvml.NVMLError:
        return
    for process in running:
        info = ET.SubElement(processes, "process_info")
        _put(info, "pid", str(process.pid))
        memory = process.usedGpuMemory
        _put(info, "used_memory", _NOT_AVAILABLE if memory is None else f"{memory / _MIB:.0f} MiB")


def _mib_of(name: str) -> Then:
    return lambda info: f"{getattr(info, name) / _MIB:.0f} MiB"


def _percent_of(name: str) -> Then:
    return lambda rates: f"{getattr(rates, name)} %"


def _place(place: int, then: Then) -> Then:
    return lambda answer: then(answer[place])


def _celsius(fields: Any) -> str:
    return f"{fields[0].value.uiVal} C" if fields[0].nvmlReturn == 0 else _NOT_AVAILABLE


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:.2f} W"


def _yes(number: int) -> str:
    return "Yes" if number else "No"


def calls() -> list[dict[str, str]]:
    """The answers of all functions that take a GPU's handle alone, as texts."""
    answers = []
    names = [name for name, function in vars(pynvml).items() if _takes_a_handle_alone(name, function)]
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        for name in names:
            try:
                result = _shown(getattr(pynvml, name)(handle))
            except Exception as error:  # noqa: BLE001 - whatever the bindings raise is an answer, too
                result = f"{type(error).__name__}: {error}"
            answers.append({"gpu": str(index), "function": name, "result": result})
    return answers


def _takes_a_handle_alone(name: str, function: object) -> bool:
    if not name.startswith("nvmlDeviceGet") or not inspect.isfunction(function):
        return False
    parameters = list(inspect.signature(function).parameters.values())
    return (
        bool(parameters)
        and parameters[0].name in {"handle", "device"}
        and all(parameter.default is not inspect.Parameter.empty for parameter in parameters[1:])
    )


def _shown(answer: object) -> str:
    fields = getattr(answer, "_fields_", None)
    if fields is None:
        return str(answer)
    return str({name: str(getattr(answer, name)) for name, *_ in fields})


def main() -> None:
    """Print the document, or the answers."""
    pynvml.nvmlInit()
    try:
        if "--calls" in sys.argv:
            sys.stdout.write(json.dumps(calls(), indent=1))
        else:
            sys.stdout.write(ET.tostring(document(), encoding="unicode"))
    finally:
        pynvml.nvmlShutdown()


if __name__ == "__main__":
    main()

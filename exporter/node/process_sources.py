"""The sources that tell of processes on GPUs, of a node's settings, as far as they are wanted."""

from typing import TYPE_CHECKING

from exporter.config.node import Config
from exporter.node.lasting import Lasting
from exporter.node.measuring import Measuring
from exporter.sources.any_inventory import DriverSource
from exporter.sources.made import Made

if TYPE_CHECKING:
    from exporter.node.probing import Probing


def nvml(config: Config, made: Made) -> DriverSource:
    """NVML, looked for where the settings want it."""
    from exporter.sources.nvml.source import NoNvml, Nvml  # noqa: PLC0415 - only a node that answers needs it

    mode = config.nvml.mode
    if mode == "off":
        return NoNvml()
    makes_page = config.dcgm.mode == "off"
    # the page is the main job: without NVML there is none
    return made.get(Nvml, is_missed=mode == "on" or makes_page, page_host=config.node.name if makes_page else "")


def measuring(config: Config, made: Made, driver: DriverSource) -> Measuring | None:
    """What owners of shared GPUs use, by the processes that NVML tells."""
    mode, is_exposed = config.nvml.mode, config.processes.is_exposed
    if mode == "off":
        return None
    return made.get(Measuring, nvml=driver, root=config.root, is_missed=mode == "on", is_exposed=is_exposed)


def probing(config: Config, made: Made, lasting: Lasting) -> "Probing | None":
    """What programs ask of CUDA; None where the probe is off."""
    if not config.probe.is_on:
        return None
    # nobody else pays for these
    from exporter.attribution.cuda_totals import CudaTotals  # noqa: PLC0415
    from exporter.node.probing import Probing  # noqa: PLC0415
    from exporter.sources.cuda_probe.source import CudaProbe  # noqa: PLC0415

    lasting.cuda = lasting.cuda or CudaTotals()
    settings = config.probe
    probe = made.get(
        CudaProbe,
        proc=f"{config.root.rstrip('/')}/proc",
        interval_seconds=settings.interval_seconds,
        max_programs=settings.max_programs,
        any_kernel=settings.any_kernel,
    )
    keep_seconds = config.accounting.keep_seconds
    return made.get(Probing, probe=probe, totals=lasting.cuda, root=config.root, keep_seconds=keep_seconds)

"""/metric: the families of gpu-manager alone, at the path that gpu-manager has."""

from exporter.exposition.families import pieces
from exporter.model.slices import Work
from exporter.outputs.families.family import filled
from exporter.outputs.families.gpu_manager import FAMILIES
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Output, answer


def _make(look: Look) -> Work[Answer]:
    yield from look.work_out()
    return answer(TEXT_FORMAT, *(yield from pieces(filled(FAMILIES, look))))


OUTPUT = Output(path="/metric", says="what containers ask for and use of GPUs, as gpu-manager tells it", make=_make)

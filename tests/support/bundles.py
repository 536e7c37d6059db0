"""Bundles as tests make them: recordings of simulated nodes."""

from exporter.bundle.nvml_calls import CallRecorder
from exporter.bundle.recording import RecordedCall


class HearsNvml:
    """A listener that keeps the calls of NVML, and nothing else."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self._recorder = CallRecorder()

    def called(self, function: str, arguments: tuple[object, ...], result: object, code: int) -> None:
        self.calls.append(self._recorder.recorded_call(function, arguments, result, code))

    def _nothing(self, *_: object, **__: object) -> None:
        pass

    answered = failed = listed = changed = logged = _nothing

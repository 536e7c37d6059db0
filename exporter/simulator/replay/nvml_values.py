"""One answer of NVML about a whole GPU, as lines `value` and `text` of the stand-in's file (nvml.c).

Pure. Answers are JSON's values, as exporter/bundle/nvml_calls.py makes them: a struct is an object of its fields.

Tests: tests/simulator/replay/test_nvml_lines.py.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from exporter.dcgm.links import MOST_LINKS

FIELD_VALUES = "nvmlDeviceGetFieldValues"
_LICENCES = "nvmlDeviceGetGridLicensableFeatures_v4"
_MOST_CHARS = 95  # of a text in nvml.c
_LARGEST = 2**64

# The places of licences among the numbers of their call: two for each, its code and its state.
_FIRST_LICENCE = 10
_NUMBERS_A_LICENCE = 2
_OF_LINK = 1000

# The functions that answer with a text, or with a struct that has one in this field.
_TEXTS = {
    "nvmlDeviceGetName": "",
    "nvmlDeviceGetPciInfo_v3": "busId",
    "nvmlDeviceGetSerial": "",
}

_Arguments = tuple[Any, ...]
# What a line has after the function's name: which number of the answer it is, or the question's argument (nvml.c says
# which for each function); then the number; and of a numbered field also its type.
_Numbers = Iterator[tuple[int, ...]]


def line(*words: object) -> str:
    """A line of the stand-in's file."""
    return " ".join(map(str, words))


def lines_of(gpu: int, function: str, arguments: _Arguments, result: object) -> Iterator[str]:
    """The lines of an answer.

    Args:
        gpu: the GPU's index.
        function: the function's name in NVIDIA's bindings.
        arguments: those after the GPU's handle.
        result: what it returned.
    """
    if function in _TEXTS:
        text = member(result, _TEXTS[function]) if _TEXTS[function] else result
        yield line("text", gpu, function, text_of(text))
        return
    numbers = _NUMBERS.get(function, _number_itself)
    for words in numbers(arguments, result):
        yield line("value", gpu, function, *words)


def _number_itself(arguments: _Arguments, result: object) -> _Numbers:
    """A number that is the whole answer. An answer of another kind has no line."""
    if isinstance(result, int):
        place = number_of(arguments[0]) if arguments else 0
        yield place, result


def _ecc_errors(arguments: _Arguments, result: object) -> _Numbers:
    """The sum of the errors of a kind (corrected, uncorrected) since a moment (the driver's start, or ever)."""
    kind, counter = arguments
    yield number_of(kind) + 2 * number_of(counter), number_of(result)


def _violation(arguments: _Arguments, result: object) -> _Numbers:
    """The time in which a policy kept the clocks low, in nanoseconds."""
    yield number_of(arguments[0]), number_of(member(result, "violationTime"))


def _rates(_: _Arguments, result: object) -> _Numbers:
    """The part of the time in which kernels ran, and in which memory was used, in percent."""
    yield 0, number_of(member(result, "gpu"))
    yield 1, number_of(member(result, "memory"))


def _rows(_: _Arguments, result: Any) -> _Numbers:  # noqa: ANN401 - a list of JSON's
    """The remapped rows of memory: corrected, uncorrected, whether one is pending, and whether one failed."""
    yield from enumerate(map(number_of, result))


def _first(_: _Arguments, result: Any) -> _Numbers:  # noqa: ANN401 - a list of JSON's
    """The part of the time in which an encoder was busy. The period that it describes is not read."""
    yield 0, number_of(result[0])


def _fields(_: _Arguments, result: Any) -> _Numbers:  # noqa: ANN401 - a list of JSON's
    """The numbered fields that the driver has, each with its type: a driver may call a temperature a double.

    The number of a field of one link has the link in thousands.
    """
    for field in result:
        if field.get("nvmlReturn") == 0:
            link = number_of(field.get("scopeId"))
            number = number_of(field.get("fieldId")) + (_OF_LINK * link if link < MOST_LINKS else 0)
            yield number, number_of(field.get("value")), number_of(field.get("valueType"))


def _licences(_: _Arguments, result: object) -> _Numbers:
    """The number of licences for virtual GPUs, whether there can be any, and code and state of each."""
    yield 0, number_of(member(result, "licensableFeaturesCount"))
    yield 1, number_of(member(result, "isGridLicenseSupported"))

    place = _FIRST_LICENCE
    for feature in member(result, "gridLicensableFeatures") or ():
        yield place, number_of(member(feature, "featureCode"))
        yield place + 1, number_of(member(feature, "featureState"))
        place += _NUMBERS_A_LICENCE


_NUMBERS: Mapping[str, Callable[[_Arguments, Any], _Numbers]] = {
    FIELD_VALUES: _fields,
    _LICENCES: _licences,
    "nvmlDeviceGetDecoderUtilization": _first,
    "nvmlDeviceGetEncoderUtilization": _first,
    "nvmlDeviceGetRemappedRows": _rows,
    "nvmlDeviceGetTotalEccErrors": _ecc_errors,
    "nvmlDeviceGetUtilizationRates": _rates,
    "nvmlDeviceGetViolationStatus": _violation,
}


def member(struct: object, name: str) -> Any:  # noqa: ANN401 - JSON's values
    """A field of a struct; None if it is no struct, or lacks the field."""
    return struct.get(name) if isinstance(struct, dict) else None


def number_of(value: object) -> int:
    """The value if it is a number that NVML can have answered with, else 0."""
    is_possible = isinstance(value, int) and abs(value) <= _LARGEST
    return value if isinstance(value, int) and is_possible else 0


def text_of(value: object) -> str:
    """A text on one line of the file, no longer than the stand-in reads."""
    return " ".join(str(value).split())[:_MOST_CHARS]


def word_of(value: object) -> str:
    """A text without blanks, such as a UUID; "?" if there is none."""
    text = "" if value is None else str(value)
    return "".join(text.split())[:_MOST_CHARS] or "?"

"""Calls of NVML as a bundle has them: the bindings' structs, arrays, unions and handles as JSON-able values.

A handle is an address, which means nothing later. So it becomes the text of the call that returned it. A union is the
number that its bytes are: the struct around it says which of its members is meant.
"""

import ctypes
import math
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

from exporter.bundle.recording import RecordedCall

Value: TypeAlias = "int | float | str | list[Value] | dict[str, Value] | None"

# A handle that this table has not seen, which a call before the listener's time returned.
UNKNOWN_HANDLE = "?"
_SAMPLE_FREE = "nvmlGpmSampleFree"
_LEAVES = (int, float, str, bytes, ctypes.Union)
_POINTER = type(ctypes.POINTER(ctypes.c_int))
# A struct's field as it is: NVIDIA's bindings make text of bytes, and fail where that is no UTF-8.
_field = object.__getattribute__


class CallRecorder:
    """Makes a `RecordedCall` of each call, in their order, and remembers which call returned a handle.

    It is used on the thread that calls NVML, right after the call, since a struct may point into the library.
    """

    def __init__(self) -> None:
        self._handles: dict[int, str] = {}  # by address

    def recorded_call(self, function: str, arguments: tuple[object, ...], result: object, code: int) -> RecordedCall:
        """The call as JSON-able values.

        Args:
            function: its name in NVIDIA's bindings.
            arguments: those of the bindings' function.
            result: what it returned; None if it failed.
            code: nvmlReturn_t; 0 if it succeeded.
        """
        texts = tuple(
            self._handles_in(argument) if argument is result and _is_struct(argument) else self._value(argument)
            for argument in arguments
        )
        if code == 0 and _is_handle(result):
            self._handles[_address(result)] = f"{function}({','.join(map(_text, texts))})"
        elif function == _SAMPLE_FREE:
            self._handles.pop(_address(arguments[0]), None)
        return RecordedCall(function=function, arguments=texts, result=self._value(result), code=code)

    def _value(self, value: Any) -> Value:  # noqa: ANN401 - whatever the bindings answer with
        """A value of the bindings, as JSON has it."""
        if value is None or isinstance(value, _LEAVES):
            return _leaf(value)
        if _is_struct(value):
            return {name: self._value(_field(value, name)) for name in _names_of(value)}
        if isinstance(value, ctypes.Array):
            return [self._value(element) for element in _used(value)]
        if isinstance(value, list | tuple):
            return [self._value(element) for element in value]
        if _is_handle(value):
            return self._handles.get(_address(value), UNKNOWN_HANDLE) if value else None
        return {name: self._value(element) for name, element in vars(value).items()}

    def _handles_in(self, struct: Any) -> Value:  # noqa: ANN401 - a struct of the bindings
        """The handles of a struct that NVML fills in, which is the call's result at the same time."""
        fields = {name: _field(struct, name) for name in _names_of(struct)}
        return {name: self._value(value) for name, value in fields.items() if _is_handle(value)}


def _leaf(value: Any) -> Value:  # noqa: ANN401 - one of _LEAVES, or None
    """A value without parts. JSON has no number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, ctypes.Union):
        return int.from_bytes(bytes(value), sys.byteorder)
    return value  # type: ignore[no-any-return] # of one of _LEAVES


def _is_struct(value: object) -> bool:
    return isinstance(value, ctypes.Structure)


def _names_of(struct: ctypes.Structure) -> Iterator[str]:
    for field in struct._fields_:
        yield field[0]


def _used(array: "ctypes.Array[Any]") -> list[Any]:
    """The elements up to the last one that is not all zeros. NVML's structs have room for the most that may be."""
    size = ctypes.sizeof(array._type_)
    used = bytes(array).rstrip(b"\0")
    return [array[place] for place in range(-(-len(used) // size))]


def _is_handle(value: object) -> bool:
    return isinstance(type(value), _POINTER)


def _address(handle: object) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0  # type: ignore[arg-type] # a pointer of any type


def _text(value: object) -> str:
    return ",".join(map(str, value.values())) if isinstance(value, dict) else str(value)

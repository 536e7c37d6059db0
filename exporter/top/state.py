"""The state of the view that the user chose, and its changes by keys. Pure.

Tests: tests/top/test_parts.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from exporter.model.device_row import RowDevice
from exporter.model.name_order import as_people_count
from exporter.model.states import IN_HAND, WORDS, DeviceState
from exporter.top.shown_devices import ShownDevice, ShownProcess

MOST_FILTER_CHARS = 100
_PAGE = 10
_END = 10**9

Row = TypeVar("Row")
Key = tuple[Any, ...]
View = Literal["devices", "processes", "history"]
# The values of `--sort`, each with the key that chooses it.
SORTS = {"gpu": "g", "utilization": "u", "memory": "m", "watts": "w", "temperature": "t", "name": "n", "idle": "i"}
_SORT_OF = {key: name for name, key in SORTS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of the view.

    `typing` says whether the user writes the filter, and `cursor` is the chosen line. `subject` is the device whose
    history is shown, and the holder whose part of it; None until the picture has found it.
    """

    sort: str = "gpu"
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    before_typing: str = ""
    view: View = "devices"
    paused: bool = False
    helps: bool = False
    quits: bool = False
    cursor: int = 0
    subject: tuple[RowDevice, str] | None = None


def press(state: State, key: str) -> State:
    """The state after a key, which is a character, or a key's name such as "up"."""
    if state.typing:
        return _type(state, key)
    if state.helps and key not in ("q", "quit"):
        return replace(state, helps=False)
    if key in _SORT_OF:
        return replace(state, sort=_SORT_OF[key], reverse=False, cursor=0)
    return _ACTIONS[key](state) if key in _ACTIONS else state


def _type(state: State, key: str) -> State:
    if key == "quit":
        return replace(state, quits=True)
    if key == "enter":
        return replace(state, typing=False)
    if key == "escape":
        return replace(state, typing=False, filter=state.before_typing)
    if key == "backspace":
        return replace(state, filter=state.filter[:-1], cursor=0)
    if len(key) == 1 and key.isprintable() and len(state.filter) < MOST_FILTER_CHARS:
        return replace(state, filter=state.filter + key, cursor=0)
    return state


def _moved(lines: int) -> Callable[[State], State]:
    return lambda state: replace(state, cursor=max(0, min(_END, state.cursor + lines)), subject=None)


def _back(state: State) -> State:
    """Go back from a device's history to the devices, and from these to all devices, without a filter."""
    if state.view == "history":
        return replace(state, view="devices", subject=None)
    return replace(state, filter="", cursor=0)


_ACTIONS: Mapping[str, Callable[[State], State]] = {
    **dict.fromkeys(("q", "quit"), lambda state: replace(state, quits=True)),
    **dict.fromkeys(("?", "h"), lambda state: replace(state, helps=True)),
    "r": lambda state: replace(state, reverse=not state.reverse, cursor=0),
    "/": lambda state: replace(state, typing=True, before_typing=state.filter),
    "escape": _back,
    "enter": lambda state: _back(state) if state.view == "history" else replace(state, view="history", subject=None),
    " ": lambda state: replace(state, paused=not state.paused),
    "p": lambda state: replace(state, view="devices" if state.view == "processes" else "processes", cursor=0),
    **dict.fromkeys(("up", "k"), _moved(-1)),
    **dict.fromkeys(("down", "j"), _moved(1)),
    "page up": _moved(-_PAGE),
    "page down": _moved(_PAGE),
    "home": _moved(-_END),
    "end": _moved(_END),
}


def chosen_devices(devices: Sequence[ShownDevice], state: State) -> Sequence[ShownDevice]:
    """The devices that match the filter, sorted.

    If they are sorted by GPU, a cut GPU stays above its instances, if any of them is left.
    """
    words = state.filter.lower().split()
    left = [device for device in devices if not words or _matches(_words_of(device), words)]
    if state.sort in _OF_WHOLE_GPUS:
        return _sorted(left, _DEVICE_KEYS[state.sort], state)
    ordered = _sorted([device for device in left if not device.mig_instances], _DEVICE_KEYS[state.sort], state)
    if state.sort != "gpu":
        return ordered
    parents = {device.gpu_name: device for device in devices if device.mig_instances}
    chosen: list[ShownDevice] = []
    for device in ordered:
        if device.gpu_name in parents:
            chosen.append(parents.pop(device.gpu_name))
        chosen.append(device)
    return chosen


def chosen_processes(processes: Sequence[ShownProcess], state: State) -> Sequence[ShownProcess]:
    """The processes that match the filter, sorted."""
    words = state.filter.lower().split()
    left = [
        process
        for process in processes
        if _matches(f"{process.node} {process.device} {process.owner} {process.command}", words)
    ]
    return _sorted(left, _PROCESS_KEYS.get(state.sort, lambda _: (False,)), state)


def _sorted(rows: Sequence[Row], key: Callable[[Row], Key], state: State) -> Sequence[Row]:
    """The rows in order. Rows that go last do so in both directions."""
    if state.reverse and state.sort == "gpu":
        rows = rows[::-1]
    ordered = sorted(rows, key=key, reverse=state.reverse)
    return sorted(ordered, key=lambda row: key(row)[0])


def _matches(text: str, words: Sequence[str]) -> bool:
    text = text.lower()
    return all(word in text for word in words)


def _words_of(device: ShownDevice) -> str:
    users = (*device.holders, *device.strangers)
    names = (f"{user.name}/{user.container} {user.workload_kind}/{user.workload}" for user in users)
    state = WORDS[DeviceState.IDLE] if _is_partly_idle(device) else ""
    about = (device.node, device.label, device.uuid, device.model, device.mig_profile, _WORDS[device.state], state)
    return " ".join((*about, *names))


def _is_partly_idle(device: ShownDevice) -> bool:
    return device.idle or any(holder.idle for holder in device.holders)


def _idle_minutes(device: ShownDevice) -> int:
    return max(((holder.idle_seconds or 0) // 60 for holder in device.holders), default=0)


# the words by which the filter finds a state
_WORDS: Mapping[DeviceState, str] = {
    state: f"{state} {words} {'held' * (state in IN_HAND)}" for state, words in WORDS.items()
}


def _most(value: float | None) -> Key:
    """The largest first, the unknown last."""
    return (value is None, -(value or 0.0))


# for a cut GPU, these values are known only as a whole
_OF_WHOLE_GPUS = frozenset(["watts", "temperature"])
# Keys: whether a row goes last, and then its place.
_DEVICE_KEYS: Mapping[str, Callable[[ShownDevice], Key]] = {
    "gpu": lambda device: (False, *map(as_people_count, (device.node, device.gpu, device.mig_instance_id))),
    "utilization": lambda device: _most(device.utilization_percent),
    "memory": lambda device: _most(device.memory_used_mib),
    "watts": lambda device: _most(device.power_watts),
    "temperature": lambda device: _most(device.temperature_celsius),
    "name": lambda device: (not device.holders, [holder.name for holder in device.holders]),
    # held and unused devices first: the longest idle ones, then those with most memory in use
    "idle": lambda device: (
        not _is_partly_idle(device),
        not device.idle,
        -_idle_minutes(device),
        *_most(device.memory_used_mib),
    ),
}
_PROCESS_KEYS: Mapping[str, Callable[[ShownProcess], Key]] = {
    "utilization": lambda process: _most(process.utilization_percent),
    "memory": lambda process: _most(process.memory_used_mib),
    "name": lambda process: (False, process.owner, process.command),
}

"""MIG instances: how much of a GPU each is, and dividing among them what dcgm-exporter reports of the whole GPU.

dcgm-exporter repeats fields of the whole GPU (power, energy, temperature, bytes over PCIe and NVLink, XID) on the row
of each instance (its issue 257).
"""

import re
from collections.abc import Sequence

# `<c>g.<m>gb` has c of the GPU's compute slices; a compute instance in front of it (1c.3g.20gb) changes nothing
_PROFILE = re.compile(r"(?:[0-9]+c\.)?([0-9]+)g\.")
# Of models that nobody knows: of all but a few.
USUAL_SLICES = 7
# The compute slices of a GPU by words of its model's name, as "Supported MIG Profiles" of NVIDIA's MIG User Guide (610)
# has them: the largest profile is the whole GPU.
_SLICES_OF_MODELS = {
    **dict.fromkeys(("A100", "A100X", "A800", "H100", "H800", "H20", "H200", "GH200"), 7),
    **dict.fromkeys(("B200", "GB200", "B300", "GB300"), 7),
    **dict.fromkeys(("A30", "A30X", "RTX PRO 6000"), 4),
    "THOR": 3,
    **dict.fromkeys(("RTX PRO 5000", "RTX PRO 4500"), 2),
}
# Rows that differ by more are the instances' own values. Those of one GPU may be read a moment apart.
MOST_DIFFERENCE = 0.01
_WHOLE = 1_000_000  # activity in millionths


def compute_slices(profile: str) -> int:
    """The compute slices of a MIG profile: 3 of 3g.40gb; 1 where the profile does not say."""
    match = _PROFILE.match(profile)
    return max(1, int(match[1])) if match else 1


def slices_of_model(model: str) -> int | None:
    """The compute slices that a GPU of this model (label modelName) is cut into; None where its name is not known."""
    words = f" {' '.join(model.upper().replace('-', ' ').split())} "
    return next((slices for name, slices in _SLICES_OF_MODELS.items() if f" {name} " in words), None)


def is_repeated(values: Sequence[float]) -> bool:
    """Whether the instances' rows of one field repeat the GPU's value: they differ by 1 % of the largest at most."""
    most = max(map(abs, values), default=0.0)
    return most - min(values, default=0.0) <= most * MOST_DIFFERENCE


def weights(slices: Sequence[int], activities: Sequence[float | None]) -> Sequence[int]:
    """By what instances share what the GPU used: activity (GR_ENGINE_ACTIVE, 0 to 1) times compute slices.

    By slices alone where none is active, or no activity is known.
    """
    by_activity = [
        of * round(min(max(activity or 0.0, 0.0), 1.0) * _WHOLE)
        for of, activity in zip(slices, activities, strict=True)
    ]
    return by_activity if any(by_activity) else slices


def apportion(amount: int, by: Sequence[int]) -> list[int]:
    """`amount` (0 or more) in parts that add up to it, by weights of which one at least is above 0.

    What is left over goes to the first parts of a weight above 0, unit by unit.
    """
    total = sum(by)
    parts = [amount * weight // total for weight in by]
    left = amount - sum(parts)
    for number, weight in enumerate(by):
        if not left:
            break
        if weight:
            parts[number] += 1
            left -= 1
    return parts

"""MIG instances: the part of a GPU that each of them is, and the division of a whole GPU's values among them.

dcgm-exporter repeats fields of the whole GPU (power, energy, temperature, bytes over PCIe and NVLink, XID) on the row
of each instance (its issue 257).
"""

import re
from collections.abc import Sequence

# `<c>g.<m>gb` has c of the GPU's compute slices; a compute instance in front of it (1c.3g.20gb) changes nothing
_PROFILE = re.compile(r"(?:[0-9]+c\.)?([0-9]+)g\.")
# The compute slices of a GPU whose model is not known. All but a few models have this number.
USUAL_SLICES = 7
# The compute slices of a GPU, by words of its model's name: those of its largest profile, which is the whole GPU, in
# "Supported MIG Profiles" of NVIDIA's MIG User Guide (610).
_SLICES_OF_MODELS = {
    **dict.fromkeys(("A100", "A100X", "A800", "H100", "H800", "H20", "H200", "GH200"), 7),
    **dict.fromkeys(("B200", "GB200", "B300", "GB300"), 7),
    **dict.fromkeys(("A30", "A30X", "RTX PRO 6000"), 4),
    "THOR": 3,
    **dict.fromkeys(("RTX PRO 5000", "RTX PRO 4500"), 2),
}
# Rows that differ by more are the instances' own values. Rows that repeat a GPU's value may be read a moment apart.
MOST_DIFFERENCE = 0.01
_WHOLE = 1_000_000  # activity in millionths


def compute_slices(profile: str) -> int:
    """The compute slices of a MIG profile: 3 of 3g.40gb; 1 if the profile does not say it."""
    match = _PROFILE.match(profile)
    return max(1, int(match[1])) if match else 1


def slices_of_model(model: str) -> int | None:
    """The compute slices that a GPU of this model (label modelName) is cut into; None if the model is not known."""
    words = f" {' '.join(model.upper().replace('-', ' ').split())} "
    return next((slices for name, slices in _SLICES_OF_MODELS.items() if f" {name} " in words), None)


def is_repeated(values: Sequence[float]) -> bool:
    """Whether the instances' rows of one field repeat the GPU's value: they differ by 1 % of the largest at most."""
    most = max(map(abs, values), default=0.0)
    return max(values, default=0.0) - min(values, default=0.0) <= most * MOST_DIFFERENCE


def weights(slices: Sequence[int], activities: Sequence[float | None]) -> Sequence[int]:
    """The weights by which instances share the GPU's use: activity (GR_ENGINE_ACTIVE, 0 to 1) times compute slices.

    Only the slices count if no instance is active, or if no activity is known.
    """
    by_activity = [
        of_instance * round(min(max(activity or 0.0, 0.0), 1.0) * _WHOLE)
        for of_instance, activity in zip(slices, activities, strict=True)
    ]
    return by_activity if any(by_activity) else slices


def apportion(amount: int, by: Sequence[int]) -> list[int]:
    """Parts of `amount` (0 or more) that add up to it, by weights. At least one weight is above 0.

    The first parts with a weight above 0 get the remainder, unit by unit.
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

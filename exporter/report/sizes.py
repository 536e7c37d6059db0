"""The parts that a GPU of a model can be cut into: MIG profiles, or shares of a model without MIG. Pure.

The profiles are those of "Supported MIG Profiles" in NVIDIA's MIG User Guide. A profile has less than its name says: 1g
of an H100 has 16 of 132 SMs, which is less than a seventh, and 1g.18gb of an H200 has 16 GiB. So a size that is advised
counts as the least that its name allows, and a part that is held as the most. `nvidia-smi mig -lgip` shows the numbers.

Tests: tests/report/test_advice.py.
"""

import re
from typing import Final, NamedTuple

_LEAST_OF_SLICES = 0.84
_MOST_OF_SLICES = 1.07
_LEAST_OF_NAME = 0.95
_80GB = "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb"
_96GB = "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb"
# Models with MIG: words of the model's name; the whole GPU's slices; the profiles that are smaller than the GPU. The
# first line counts whose words are all in a model's name.
_WITH_MIG: Final = (
    ("A30", 4, "1g.6gb 2g.12gb"),
    ("A100 80GB", 7, _80GB),
    ("A100 40GB", 7, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb"),
    ("H100 NVL", 7, "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb"),
    ("H100 80GB", 7, _80GB),
    ("H100 PCIE", 7, _80GB),
    ("H20", 7, _96GB),
    ("H200", 7, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb"),
    ("B200", 7, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb"),
    ("RTX PRO 6000", 4, "1g.24gb 2g.48gb"),
)
# models without MIG, by a word of their names: the whole GPU's GB
_WITHOUT_MIG: Final = {"T4": 16, "A10": 24, "A10G": 24, "L4": 24, "L40S": 48}
_SHARES = (10, 8, 6, 5, 4, 3, 2)
_PROFILE = re.compile(r"(\d)g\.(\d+)gb")


class GpuSize(NamedTuple):
    """A part of a GPU.

    `share` is its share of the GPU's price, 0 to 1. It has at least the part `least` of the GPU's SMs (0 to 1), and at
    least `memory` bytes.
    """

    name: str
    share: float
    least: float
    memory: float


def sizes_of(model: str) -> tuple[GpuSize, ...]:
    """The parts that a GPU of this model (label modelName) can be cut into, the smallest first; none if unknown."""
    sizes = []
    for word in _words_of(model) & _WITHOUT_MIG.keys():
        memory = _WITHOUT_MIG[word] * 1e9 * _LEAST_OF_NAME
        sizes += [GpuSize(f"1/{parts} of a GPU", 1 / parts, 1 / parts, memory / parts) for parts in _SHARES]
    slices, profiles = _slices_and_profiles_of(model)
    for of_slices, of_gigabytes in _PROFILE.findall(profiles):
        share = int(of_slices) / slices
        memory = float(of_gigabytes) * 1e9 * _LEAST_OF_NAME
        sizes.append(GpuSize(f"{of_slices}g.{of_gigabytes}gb", share, share * _LEAST_OF_SLICES, memory))
    return tuple(sizes)


def share_of(profile: str, model: str) -> tuple[float, float]:
    """The share of the GPU that a MIG profile ("" for the whole GPU) has, and the most that it can have of its SMs."""
    slices, _ = _slices_and_profiles_of(model)
    match = _PROFILE.search(profile)
    share = int(match[1]) / slices if match and slices else 1.0
    return share, min(1.0, share * _MOST_OF_SLICES)


def _slices_and_profiles_of(model: str) -> tuple[int, str]:
    """The slices of a GPU of the model, and the profiles that are smaller than it; of a model without MIG none."""
    words = _words_of(model)
    for of_model, slices, profiles in _WITH_MIG:
        if words.issuperset(of_model.split()):
            return slices, profiles
    return 0, ""


def _words_of(model: str) -> set[str]:
    return set(re.split(r"[ -]", model.upper()))

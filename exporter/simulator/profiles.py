"""The MIG profiles of two models: how much of the GPU each is, and which cuts of a GPU are possible."""

from collections.abc import Sequence
from dataclasses import dataclass

SMALLEST = "1g.10gb"


@dataclass(frozen=True, slots=True)
class Card:
    """A model of GPU; `memory` is in MiB, as nvidia-smi says it."""

    model: str
    slices: int
    memory_slices: int
    memory: int


H100 = Card("NVIDIA H100 80GB HBM3", 7, 8, 81_559)
RTX_PRO_6000 = Card("NVIDIA RTX PRO 6000 Blackwell Server Edition", 4, 4, 97_887)


@dataclass(frozen=True, slots=True)
class Profile:
    """`memory` is in MiB, as `nvidia-smi mig -lgip` says it; `first_id` is the lowest GPU_I_ID of its instances."""

    slices: int
    memory_slices: int
    memory: int
    first_id: int
    most: int
    card: Card = H100


PROFILES = {
    "1g.10gb": Profile(1, 1, 9_984, 7, 7),
    "1g.10gb+me": Profile(1, 1, 9_984, 13, 1),
    "1g.20gb": Profile(1, 2, 19_968, 15, 4),
    "2g.20gb": Profile(2, 2, 19_968, 3, 3),
    "3g.40gb": Profile(3, 4, 40_192, 1, 2),
    "4g.40gb": Profile(4, 4, 40_192, 1, 1),
    "7g.80gb": Profile(7, 8, 80_896, 0, 1),
    "1g.24gb": Profile(1, 1, 24_192, 3, 4, RTX_PRO_6000),
    "2g.48gb": Profile(2, 2, 48_512, 1, 2, RTX_PRO_6000),
    "4g.96gb": Profile(4, 4, 97_280, 0, 1, RTX_PRO_6000),
}


def resource_of(profile: str) -> str:
    """The resource under which NVIDIA's device plugin hands out such an instance: `+me` becomes `.me`."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def instance_ids(cut: Sequence[str]) -> list[int]:
    """The GPU_I_ID of each instance of a cut.

    Raises:
        ValueError: no GPU can be cut like this.
    """
    profiles = [PROFILES.get(name) for name in cut]
    known = [profile for profile in profiles if profile]
    if (
        len(known) < len(cut)
        or len({profile.card for profile in known}) > 1
        or any(sum(profile.slices for profile in known) > profile.card.slices for profile in known)
        or any(sum(profile.memory_slices for profile in known) > profile.card.memory_slices for profile in known)
        or any(cut.count(name) > PROFILES[name].most for name in cut)
    ):
        raise ValueError(f"no GPU can be cut into {', '.join(cut)}")
    taken: list[int] = []
    for profile in known:
        taken.append(next(number for number in range(profile.first_id, 99) if number not in taken))
    return taken

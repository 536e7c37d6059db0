"""What was given, and what in it is doubtful."""

from dataclasses import dataclass
from typing import NamedTuple

_DEFAULT = "the default of "


@dataclass(frozen=True, slots=True)
class Given:
    """The texts of a setting, and where they were given, as errors name it."""

    where: str
    values: tuple[str, ...]

    @property
    def origin(self) -> str:
        """Where they come from, for people."""
        return "default" if self.where.startswith(_DEFAULT) else self.where


def by_default(flag: str, *texts: str) -> Given:
    """A default, which an error names as such."""
    return Given(f"{_DEFAULT}{flag}", texts)


class Doubt(NamedTuple):
    """Something that can be used, and was probably meant otherwise; with what to do."""

    says: str
    remedy: str

"""What was given, and what in it is doubtful."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from exporter.config.parsers import without_secrets

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


def shown(given: Iterable[tuple[str, Given]]) -> dict[str, dict[str, str]]:
    """Every setting's value and where it comes from, for people: without user information and query of URLs."""
    return {
        name: {"value": ",".join(map(without_secrets, texts.values)), "from": texts.origin} for name, texts in given
    }


class Doubt(NamedTuple):
    """Something that can be used, and was probably meant otherwise; with what to do."""

    says: str
    remedy: str

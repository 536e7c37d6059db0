"""What was given, and what in it is doubtful."""

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


class Doubt(NamedTuple):
    """Something that can be used, and was probably meant otherwise; with what to do."""

    says: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What every role's configuration says of itself, beside its groups.

    `config_file` is the file that it was read from. `given` is the texts that it was made of, by setting name, and
    `doubts` what was probably meant otherwise.
    """

    config_file: str | None
    given: tuple[tuple[str, Given], ...]
    doubts: tuple[Doubt, ...]

    def shown(self) -> dict[str, dict[str, str]]:
        """Every setting's value and where it comes from, for people: without user information and query of URLs."""
        return {
            name: {"value": ",".join(map(without_secrets, texts.values)), "from": texts.origin}
            for name, texts in self.given
        }

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is made of: a change in one of them is a change of the configuration."""
        return tuple(path for path in (self.config_file, *self._named_files()) if path)

    def _named_files(self) -> tuple[str | None, ...]:
        """Those that settings name, and that are read with it."""
        return ()

"""A role: what the process does by one configuration. service.py runs any, and exchanges it for another."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from exporter import __version__, log
from exporter.config.common import LogSettings, WebSettings
from exporter.config.web_file import WebConfig
from exporter.errors import Trouble
from exporter.outputs.output import AnyLook, Need, Output
from exporter.telemetry import Telemetry


class AnyConfig(Protocol):
    """What every role's configuration has."""

    @property
    def web(self) -> WebSettings:
        """Where it answers, and to whom."""

    @property
    def log(self) -> LogSettings:
        """What is logged, and how."""

    @property
    def doubts(self) -> Sequence[Trouble]:
        """What the user probably meant otherwise."""

    def shown(self) -> Mapping[str, Mapping[str, str]]:
        """Every setting's value and where it comes from, for people."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is made of: a change in one of them is a change of the configuration."""


class Role(Protocol):
    """What the process does by one configuration: that of a node, or of a cluster. Only its outputs know its looks."""

    @property
    def outputs(self) -> Sequence[Output[Any]]:
        """What it answers, and where."""

    @property
    def telemetry(self) -> Telemetry:
        """What the program counts of itself: a role hands it on to its successor."""

    @property
    def instance(self) -> str:
        """What this process calls itself towards upstreams; handed on, too."""

    @property
    def pulse_seconds(self) -> float | None:
        """How often `pulse` is called while the process answers; None: never."""

    async def pulse(self) -> None:
        """Do the work that must not depend on scrapes."""

    @property
    def looked(self) -> Callable[..., AnyLook]:
        """Makes an output's look of what was seen, None for nothing, and of the fields of `AnyLook` by name."""

    def look(self, wait_seconds: float | None, needs: AbstractSet[Need]) -> Coroutine[None, None, Any]:
        """What can be seen within `wait_seconds`."""

    async def why_not_ready(self) -> str:
        """The reason, or "" for ready."""

    async def give_way(self, successor: Self) -> None:
        """Let the looks in flight end, then close what the successor does not go on with."""

    async def close(self) -> None:
        """End what is in flight."""


def log_settings(config: AnyConfig) -> None:
    """Log every doubt about the settings, and at debug every setting."""
    for doubt in config.doubts:
        log.warning(doubt.message, remedy=doubt.remedy)
    for name, shown in config.shown().items():
        log.debug("setting", name=name, value=shown["value"], given_by=shown["from"])


def about(config: AnyConfig, _: object) -> Mapping[str, Any]:
    """The program's version and its settings; no secret is in them."""
    return {"version": __version__, "settings": config.shown()}


ConfigT = TypeVar("ConfigT", bound=AnyConfig)
ConfigT_contra = TypeVar("ConfigT_contra", bound=AnyConfig, contravariant=True)


class SecondServer(Protocol):
    """What answers beside HTTP, for as long as the process runs: it asks the role of the moment."""

    def check_stays(self, config: Any, web: WebConfig) -> None:  # noqa: ANN401 - the configuration of its own role
        """Refuse, by a ConfigError that names the setting, what it cannot take up while it answers."""

    def use_certificates(self) -> None:
        """Use the certificates as they are now in the files that `check_stays` has seen the names of."""

    async def close(self) -> None:
        """Stop answering; answers in flight end."""


class AnswerBeside(Protocol[ConfigT_contra]):
    """Starts what answers beside HTTP, if anything does. `current` is the role of the moment.

    Raises ConfigError: it cannot protect what the web config protects. PortTaken: an address to listen on cannot be
    had.
    """

    async def __call__(self, config: ConfigT_contra, web: WebConfig, current: Callable[[], Role]) -> SecondServer: ...  # noqa: D102 - see above


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleKind(Generic[ConfigT]):
    """How to make a role of a configuration and of the previous role, and what to log of it.

    `about` is what there is to say of the program and of what the role saw, beside its answers; `say` logs what will
    be done; `names` go into the line that says that it listens. `beside` is for a role that answers not by HTTP alone.

    `make` raises:
        ConfigError: a file that the configuration names cannot be used.
    """

    make: Callable[[ConfigT, Role | None], Role]
    about: Callable[[ConfigT, Any], Mapping[str, Any]]
    say: Callable[[ConfigT], None]
    names: Callable[[ConfigT], Mapping[str, str]]
    beside: AnswerBeside[ConfigT] | None = None

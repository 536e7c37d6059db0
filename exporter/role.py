"""What a role is: the work of the process by one configuration.

service.py runs and exchanges roles.
"""

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
    """The part that every role's configuration has."""

    @property
    def web(self) -> WebSettings:
        """The addresses to listen on, and the file that says who may ask."""

    @property
    def log(self) -> LogSettings:
        """The level and the form of the log."""

    @property
    def doubts(self) -> Sequence[Trouble]:
        """The doubts about settings that look like mistakes."""

    def shown(self) -> Mapping[str, Mapping[str, str]]:
        """Every setting's value and the place that gave it, for people."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the configuration is made of. If one of them changes, so does the configuration."""


class Role(Protocol):
    """The work of the process by one configuration, such as a node's or a cluster's. Only outputs know its looks."""

    @property
    def outputs(self) -> Sequence[Output[Any]]:
        """The outputs, with their paths."""

    @property
    def telemetry(self) -> Telemetry:
        """The program's counters about itself, which a role hands on to its successor."""

    @property
    def instance(self) -> str:
        """The name of this process towards upstreams, which a role hands on, too."""

    @property
    def pulse_seconds(self) -> float | None:
        """The interval of calls of `pulse` while the process answers; None: never."""

    async def pulse(self) -> None:
        """Do the regular work that does not depend on scrapes."""

    @property
    def looked(self) -> Callable[..., AnyLook]:
        """Makes an output's look of the result of `look` (None without one) and of the fields of `AnyLook` by name."""

    def look(self, wait_seconds: float | None, needs: AbstractSet[Need]) -> Coroutine[None, None, Any]:
        """Look, for at most `wait_seconds`, with the parts that `needs` names."""

    async def why_not_ready(self) -> str:
        """The reason why the role is not ready; "" if it is ready."""

    async def give_way(self, successor: Self) -> None:
        """Let looks in flight end, then close the parts that the successor does not take over."""

    async def close(self) -> None:
        """End the looks in flight, and close all parts."""


def log_settings(config: AnyConfig) -> None:
    """Log every doubt about the settings, and at level debug every setting."""
    for doubt in config.doubts:
        log.warning(doubt.message, remedy=doubt.remedy)
    for name, shown in config.shown().items():
        log.debug("setting", name=name, value=shown["value"], given_by=shown["from"])


def about(config: AnyConfig, _: object) -> Mapping[str, Any]:
    """The program's version and its settings, without secrets."""
    return {"version": __version__, "settings": config.shown()}


ConfigT = TypeVar("ConfigT", bound=AnyConfig)
ConfigT_contra = TypeVar("ConfigT_contra", bound=AnyConfig, contravariant=True)


class SecondServer(Protocol):
    """A server beside HTTP, which runs as long as the process. It asks the present role."""

    def check_stays(self, config: Any, web: WebConfig) -> None:  # noqa: ANN401 - the configuration of its own role
        """Check that it can take over a configuration while it answers. Raises ConfigError, which names the setting."""

    def use_certificates(self) -> None:
        """Use the present certificates, from the files that the web config of `check_stays` named."""

    async def close(self) -> None:
        """Stop answering, after answers in flight have ended."""


class AnswerBeside(Protocol[ConfigT_contra]):
    """Starts the server beside HTTP, if there is one. `current` returns the present role.

    Raises:
        ConfigError: the server cannot give the protection that the web config asks for.
        PortTaken: the program cannot listen on an address.
    """

    async def __call__(self, config: ConfigT_contra, web: WebConfig, current: Callable[[], Role]) -> SecondServer: ...  # noqa: D102 - see above


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleKind(Generic[ConfigT]):
    """The kind of a role: the functions that make it and describe it.

    Attributes:
        make: makes a role of a configuration and of the previous role. Raises ConfigError: a file cannot be used.
        about: the facts about the program, and about a look, for /debug/mapping.
        say: logs what the role will do.
        names: the fields of the log line that says that it listens.
        beside: starts a server beside HTTP; None for no such server.
    """

    make: Callable[[ConfigT, Role | None], Role]
    about: Callable[[ConfigT, Any], Mapping[str, Any]]
    say: Callable[[ConfigT], None]
    names: Callable[[ConfigT], Mapping[str, str]]
    beside: AnswerBeside[ConfigT] | None = None

"""A setting is one field: everything else is made from it."""

from dataclasses import dataclass, fields

import pytest

from exporter.config.load import load
from exporter.config.node_settings import GROUPS, SETTINGS, Config
from exporter.config.parsers import POSITIVE_DURATION, choice, one_of
from exporter.config.settings import Configuration, optional, setting, settings_of, several


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    seconds: float = setting("a.long-wait", POSITIVE_DURATION, "How long.", default="5s", also_env="WAIT")
    loud: bool | None = optional("loud", choice({"on": True, "off": False}), "Whether to shout.")
    words: tuple[str, ...] = several("words", one_of("yes", "no", "perhaps"), "What to shout.")
    told: int


def test_a_field_is_a_flag_an_environment_name_and_a_parser() -> None:
    found = dict(settings_of(_Group))
    assert list(found) == ["seconds", "loud", "words"]
    seconds, loud, words = found.values()
    assert (seconds.flag, seconds.env) == ("--a.long-wait", "POD_GPU_EXPORTER_A_LONG_WAIT")
    assert (seconds.kind.parse("2m"), seconds.kind.metavar) == (120.0, "DURATION")
    assert (loud.kind.parse("off"), loud.kind.allowed, loud.kind.metavar) == (False, "on or off", "on|off")
    assert (words.kind.allowed, words.repeatable) == ("yes, no or perhaps", True)
    assert (loud.absent, words.absent) == (None, ())
    with pytest.raises(ValueError, match=r"^$"):
        words.kind.parse("never")


def test_no_two_settings_are_called_alike() -> None:
    for names in (
        [found.name for found in SETTINGS],
        [found.parameter for found in SETTINGS],
        [name for found in SETTINGS for name in (found.env, found.also_env) if name],
    ):
        assert len(set(names)) == len(names)


def test_a_default_is_a_text_that_may_be_given() -> None:
    for found in SETTINGS:
        if found.default is not None:
            for text in found.default.split(",") if found.repeatable else [found.default]:
                found.kind.parse(text)


def test_every_group_is_filled_and_can_tell_one_source_from_another() -> None:
    config = load({}, {}, None, "host")
    besides = {"root", *(field.name for field in fields(Configuration))}
    assert [*GROUPS] == [field.name for field in fields(Config) if field.name not in besides]
    for name, group in GROUPS.items():
        made = getattr(config, name)
        assert type(made) is group
        assert hash(made) == hash(getattr(load({}, {}, None, "host"), name))
        with pytest.raises(AttributeError):
            setattr(made, fields(group)[0].name, None)

"""The program's own words are told from those that come from outside."""

import json
from typing import Any

import pytest

from exporter.bundle.vocabulary import foreign_words, own_words
from exporter.config.node_settings import Config
from exporter.config.settings import settings_of
from exporter.dcgm.fields import FIELDS
from exporter.model.device_row import DeviceRow
from exporter.outputs.families.catalogue import FAMILIES
from tests.support.places import ROOT


@pytest.mark.parametrize("name", ["jupyter-anna-0", "meyer", "ollama-llama", "kubeflow", "gpu-node-böblingen"])
def test_a_user_s_name_is_foreign(name: str) -> None:
    assert foreign_words(name)


def without_examples(value: Any) -> Any:
    if isinstance(value, list):
        return [without_examples(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {key: without_examples(inner) for key, inner in value.items() if key not in ("example", "examples")}


def test_what_the_program_writes_is_its_own() -> None:
    texts = [
        *(f"{family.name} {family.help} {' '.join(family.labels)}" for family in FAMILIES),
        *FIELDS,
        *(f"{setting.name} {setting.default}" for _, setting in settings_of(Config)),
        *DeviceRow._fields,
        json.dumps(without_examples(json.loads((ROOT / "exporter/outputs/openapi.json").read_text()))),
    ]
    assert {word for text in texts for word in foreign_words(text)} == set()


def test_the_simulator_s_pods_lend_no_word_to_it() -> None:
    assert not own_words() & {"jupyter", "llama", "notebook", "anna"}

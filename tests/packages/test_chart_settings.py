"""The chart knows the settings of each command, and refuses what the program would: files/settings.json has them."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from exporter.config import cluster_settings, node_settings, operator_settings
from exporter.config.settings import Setting
from tests.support.chart import CHART, rendered_texts
from tests.support.golden import Golden
from tests.support.manifests import Object

FILE = CHART / "files" / "settings.json"
ROLES: dict[str, Sequence[Setting]] = {
    "serve": node_settings.SETTINGS,
    "cluster": cluster_settings.SETTINGS,
    "operator": operator_settings.SETTINGS,
}
# Forms of many values, as Go's regular expressions take them, too.
FORMS = {"DURATION": r"[0-9]+([.][0-9]+)?(ms|s|m|h)", "NUMBER": "0*[1-9][0-9]*", "RATIO": "0+([.][0-9]+)?|0*1([.]0+)?"}


def row(setting: Setting) -> Object:
    """What the chart is to know: what the setting takes, and the form of it where that says all."""
    words = setting.kind.metavar.split("|")
    form = FORMS.get(setting.kind.metavar, "")
    if len(words) > 1 and all(word == word.lower() for word in words):
        form = "|".join(map(re.escape, words))
    return {"takes": setting.kind.allowed, **({"form": f"^({form})$"} if form else {})}


def made() -> dict[str, Any]:
    return {role: {setting.name: row(setting) for setting in settings} for role, settings in ROLES.items()}


# issue 22, line 21
def test_the_chart_knows_every_setting(golden: Golden) -> None:
    golden.holds(FILE, json.dumps(made(), indent=1) + "\n")


@pytest.mark.parametrize("role", ROLES)
def test_a_form_is_what_the_program_takes(role: str) -> None:
    """No value that the program takes is refused by the chart, and none that it lacks a word for is let through."""
    for setting in ROLES[role]:
        form = made()[role][setting.name].get("form")
        if form is None:
            continue
        for text in (*setting.kind.metavar.split("|"), "5s", "0s", "1.5m", "500ms", "5", "0.05", "0", "1", "1.0", "on"):
            try:
                setting.kind.parse(text)
            except ValueError:
                # that a duration may not be 0 is for the program to say
                assert not re.fullmatch(form, text) or re.fullmatch("0+m?s?", text), (setting.name, text)
            else:
                assert re.fullmatch(form, text), (setting.name, text)


# issue 22, line 21
@pytest.mark.real
@pytest.mark.parametrize(
    "values",
    [
        {"config": {"sharing": "split", "labels": {"pod-uid": True, "pod-labels": ".*"}, "kubelet.timeout": "5s"}},
        {"config": {"dcgm.selector": "auto", "resources": ["nvidia.com/*", "amd.com/gpu"]}, "mode": "custom"},
        {"config": {"labels": {}, "accounting": {"idle-below": 0.1, "mode": False}}},
        {"extraArgs": ["--sharing=split", "--log.level", "debug", "--labels.pod-labels=a=b", "--config.file=/x"]},
        {"mode": "custom", "extraArgs": ["--dcgm.url", "http://gpu-1:9401/metrics"]},
        {"mode": "custom", "extraArgs": ["--dcgm.mode=off"]},
        {"mode": "custom", "config": {"dcgm": {"url": ["http://gpu-1:9401/metrics"]}}},
        {"mode": "custom", "extraEnv": [{"name": "DCGM_HOST", "value": "gpu-1"}]},
        {"mode": "custom", "extraEnv": [{"name": "POD_GPU_EXPORTER_CONFIG_FILE", "value": "/x"}]},
        {"resources": {"limits": {"memory": "256Mi", "cpu": 1}, "requests": {"memory": 134217728, "cpu": "100m"}}},
        {"resources": {"limits": {"memory": "1.5Gi", "nvidia.com/gpu": 0}, "requests": {"cpu": 0.5}}},
        {"resources": {"limits": None, "requests": {"memory": None}}},
        {"resources": {}},
        {"cluster": {"enabled": True, "extraArgs": ["--cluster.interval=5s", "--web.config.file=/x"]}},
    ],
    ids=str,
)
def test_what_the_program_takes_is_not_refused(values: Object) -> None:
    assert rendered_texts(values)

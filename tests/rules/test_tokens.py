"""Energy and GPU time for each 1,000 tokens of worlds whose answer is known: by promtool, with the shipped rules."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.rules.shipped import PROMETHEUS, run, write_needed

pytestmark = pytest.mark.real

PER_1000 = "_per_1000_tokens:ratio_rate5m"
VLLM = "vllm:generation_tokens_total"


def account(
    pod: str, uuid: str, *, watts: float, held: float = 1.0, used: float = 1.0, workload: str = "w"
) -> dict[str, str]:
    """The accounts of a pod and a GPU, of which it holds and uses so much, over an hour, every 30 s."""
    labels = f'{{namespace="ml",pod="{pod}",container="c",UUID="{uuid}",node="n"'
    labels += f',workload_name="{workload}",workload_kind="Deployment"}}' if workload else "}"
    rates = {"energy_joules": watts, "allocated_seconds": held, "active_seconds": used}
    return {f"pod_gpu_{name}_total{labels}": f"0+{rate * 30:g}x120" for name, rate in rates.items()}


def counter(pod: str, rate: float, served: str = "llama", name: str = VLLM, **labels: str) -> dict[str, str]:
    """A server's counter: so many tokens a second."""
    all_labels = {
        "namespace": "ml",
        "pod": pod,
        "job": "servers",
        **({"model_name": served} if served else {}),
        **labels,
    }
    written = ",".join(f'{key}="{value}"' for key, value in all_labels.items())
    return {f"{name}{{{written}}}": f"0+{rate * 30:g}x120"}


def row(model: str, workload: str = "w") -> str:
    parts = [f'model_name="{model}"'] if model else []
    parts += ['namespace="ml"']
    parts += [f'workload_kind="Deployment",workload_name="{workload}"'] if workload else []
    return f"{{{','.join(parts)}}}"


def many(pods: int, gpus: int, watts: float) -> dict[str, str]:
    return {
        name: values
        for pod in range(pods)
        for gpu in range(gpus)
        for name, values in account(f"p{pod}", f"GPU-{pod}-{gpu}", watts=watts).items()
    }


# the world, and joules, GPU-seconds held and used for 1,000 tokens by row
WORLDS: Mapping[str, tuple[dict[str, str], Mapping[str, tuple[float, float, float]]]] = {
    "a whole GPU": (account("p", "G", watts=500, used=0.8) | counter("p", 250), {row("llama"): (2000, 4, 3.2)}),
    "a third of a GPU": (
        account("p", "G", watts=200, held=1 / 3, used=0.3)
        | account("q", "G", watts=400, held=2 / 3, used=0.5, workload="x")
        | counter("p", 100),
        {row("llama"): (2000, 10 / 3, 3)},
    ),
    "two pods of four GPUs": (
        many(2, 4, 600) | counter("p0", 1000) | counter("p1", 2000),
        {row("llama"): (1600, 8 / 3, 8 / 3)},
    ),
    "a server on two pods, of which one counts": (
        many(2, 4, 600) | counter("p0", 2400),
        {row("llama"): (2000, 10 / 3, 10 / 3)},
    ),
    "two jobs scrape a server of two ports": (
        account("p", "G", watts=500)
        | counter("p", 100, instance="a:1")
        | counter("p", 150, instance="a:2")
        | counter("p", 100, instance="a:1", job="again")
        | counter("p", 150, instance="a:2", job="again"),
        {row("llama"): (2000, 4, 4)},
    ),
    "two models in a pod cannot be divided": (
        account("p", "G", watts=500) | counter("p", 150) | counter("p", 100, "qwen"),
        {row("(several)"): (2000, 4, 4)},
    ),
    "two models of one workload, by pod; a third pod is nobody's": (
        account("p", "G", watts=500)
        | account("q", "H", watts=300)
        | account("r", "I", watts=700)
        | counter("p", 250)
        | counter("q", 100, "qwen"),
        {row("llama"): (2000, 4, 4), row("qwen"): (3000, 10, 10)},
    ),
    "without a recorded workload": (
        account("p", "G", watts=500, workload="") | account("q", "H", watts=500, workload="") | counter("p", 250),
        {row("llama", ""): (2000, 4, 4)},
    ),
    "nobody asks it anything": (account("p", "G", watts=500) | counter("p", 0), {}),
}
# each server's counter and the labels that it has of its own
SERVERS = {
    VLLM: {"model_name": "llama", "engine": "0"},
    "sglang:generation_tokens_total": {"model_name": "llama", "engine_type": "unified"},
    "trtllm_generation_tokens_total": {"model_name": "llama", "engine_type": "trtllm"},
    "generation_tokens_total": {"model_name": "llama"},
    "nv_llm_output_token_len_sum": {"model": "llama", "version": "1", "response_metric_type": "total_output_tokens"},
    "tgi_request_generated_tokens_sum": {},
}
PROMPTS = {
    "vllm:prompt_tokens_total": "model_name",
    "sglang:prompt_tokens_total": "model_name",
    "trtllm_prompt_tokens_total": "model_name",
    "prompt_tokens_total": "model_name",
    "nv_llm_input_token_len_sum": "model",
    "tgi_request_input_length_sum": "",
}
WORLDS_OF_SERVERS = {
    f"{name}": (
        account("p", "G", watts=500) | counter("p", 250, "", name, **labels),
        {row("llama" if labels else ""): (2000.0, 4.0, 4.0)},
    )
    for name, labels in SERVERS.items()
}


def cases(world: Mapping[str, tuple[float, float, float]]) -> Iterator[Mapping[str, object]]:
    for place, metric in enumerate(("energy_joules", "allocated_seconds", "active_seconds")):
        samples = [{"labels": labels, "value": round(values[place], 2)} for labels, values in world.items()]
        query = f"round(served_model:pod_gpu_{metric}{PER_1000}, 0.01)"
        yield {"expr": query, "eval_time": "40m", "exp_samples": samples}


def check(promtool: Path, folder: Path, series: dict[str, str], asked: list[Mapping[str, object]]) -> None:
    case = folder / "test.yaml"
    rules = folder / "rules.yaml"
    files = [PROMETHEUS / "rules" / f"{name}.yaml" for name in ("recording", "tokens")]
    order = write_needed(rules, " ".join(str(each["expr"]) for each in asked), files)
    there = {'node_gpu_capacity{node="n",model="H100"}': "8x120"}
    block = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in (series | there).items()],
        "promql_expr_test": asked,
    }
    settings = {"rule_files": [str(rules)], "group_eval_order": order, "evaluation_interval": "1m"}
    case.write_text(json.dumps({**settings, "tests": [block]}))
    run(promtool, "test", "rules", case)


# issue 20, Must show 3
@pytest.mark.parametrize("name", [*WORLDS, *WORLDS_OF_SERVERS])
def test_what_a_thousand_tokens_take(promtool: Path, tmp_path: Path, name: str) -> None:
    series, rows = {**WORLDS, **WORLDS_OF_SERVERS}[name]
    check(promtool, tmp_path, dict(series), list(cases(rows)))


@pytest.mark.parametrize("name", PROMPTS)
def test_tokens_of_prompts_are_recorded_beside_those_generated(promtool: Path, tmp_path: Path, name: str) -> None:
    label = PROMPTS[name]
    series = (
        account("p", "G", watts=500)
        | counter("p", 250)
        | counter("p", 750, "", name, **({label: "llama"} if label else {}))
    )
    expected = {"labels": row("llama"), "value": 750}
    check(
        promtool,
        tmp_path,
        series,
        [{"expr": "round(served_model:prompt_tokens:rate5m)", "eval_time": "40m", "exp_samples": [expected]}],
    )

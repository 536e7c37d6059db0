"""The simulated NVML is a C library: on a machine that cannot build it, the demo goes on without one."""

from pathlib import Path

import pytest

from exporter.simulator.nvml import SimulatedNvml


@pytest.mark.parametrize("cache_is_writable", [True, False])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_compiler_that_fails_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_is_writable: bool, exit_code: int
) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ntouch "$2"\nexit {exit_code}\n')
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    if not cache_is_writable:
        cache.write_text("a file")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    nvml = SimulatedNvml(tmp_path / "nvml")
    assert (nvml.build(), nvml.library.exists()) == (exit_code == 0, exit_code == 0)

"""deploy/make-inventory: from what nvidia-smi says to the file that the exporter reads."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from exporter.model.devices import Inventory, InventoryGpu, MigInstance
from exporter.ownership.inventories import read_inventory
from tests.support.places import ROOT

LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0f3a54be-7b2c-4d3e-9a55-0d1c7e6f2b10)
  MIG 3g.20gb     Device  0: (UUID: MIG-6b9e1b5c-1f6c-5b0e-8a53-3c0d8c1b7a01)
  MIG 1g.5gb      Device  1: (UUID: MIG-6b9e1b5c-1f6c-5b0e-8a53-3c0d8c1b7a02)
  MIG 1c.2g.10gb  Device  2: (UUID: MIG-6b9e1b5c-1f6c-5b0e-8a53-3c0d8c1b7a03)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1f3a54be-7b2c-4d3e-9a55-0d1c7e6f2b11)
"""
ASKED = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:15:00.0">
    <mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <mig_devices>
      <mig_device><index>0</index><gpu_instance_id>2</gpu_instance_id></mig_device>
      <mig_device><index>1</index><gpu_instance_id>9</gpu_instance_id></mig_device>
      <mig_device><index>2</index><gpu_instance_id>5</gpu_instance_id></mig_device>
    </mig_devices>
    <uuid>GPU-0f3a54be-7b2c-4d3e-9a55-0d1c7e6f2b10</uuid>
  </gpu>
  <gpu id="00000000:16:00.0">
    <mig_devices>None</mig_devices>
    <uuid>GPU-1f3a54be-7b2c-4d3e-9a55-0d1c7e6f2b11</uuid>
  </gpu>
</nvidia_smi_log>
"""


def made(folder: Path, nvidia_smi: str) -> subprocess.CompletedProcess[str]:
    """What the script says where nvidia-smi is this shell script."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{nvidia_smi}")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    script = ROOT / "deploy" / "make-inventory"
    return subprocess.run([script], capture_output=True, text=True, check=False, env=environment)


# issue 7, line 19
def test_it_makes_what_the_exporter_reads(tmp_path: Path) -> None:
    for name, text in (("-L", LISTED), ("-q", ASKED)):
        (tmp_path / name).write_text(text)
    ended = made(tmp_path, f'exec cat "{tmp_path}/$1"\n')
    assert ended.returncode == 0, ended.stderr
    mig = "MIG-6b9e1b5c-1f6c-5b0e-8a53-3c0d8c1b7a0"
    assert read_inventory(json.loads(ended.stdout)) == Inventory(
        gpus=(
            InventoryGpu(
                uuid="GPU-0f3a54be-7b2c-4d3e-9a55-0d1c7e6f2b10",
                index="0",
                mig=(
                    MigInstance(uuid=f"{mig}1", instance_id="2", profile="3g.20gb"),
                    MigInstance(uuid=f"{mig}2", instance_id="9", profile="1g.5gb"),
                    MigInstance(uuid=f"{mig}3", instance_id="5", profile="2g.10gb"),
                ),
            ),
            InventoryGpu(uuid="GPU-1f3a54be-7b2c-4d3e-9a55-0d1c7e6f2b11", index="1"),
        )
    )


# issue 7, line 19
@pytest.mark.parametrize(
    ("nvidia_smi", "says"),
    [("exit 9\n", "does not answer"), ("echo neither\n", "something else than expected")],
)
def test_it_says_so_where_nvidia_smi_says_nothing_it_understands(tmp_path: Path, nvidia_smi: str, says: str) -> None:
    ended = made(tmp_path, nvidia_smi)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1

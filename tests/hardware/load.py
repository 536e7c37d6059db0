"""The loads of `make hardware`, by PyTorch; load.cu is the same in CUDA. It runs by the machine's own Python.

    load.py matmul SECONDS      products of matrices of half precision, as fast as they go
    load.py copy SECONDS        copies from pinned memory to the GPU for half of the time, then back
    load.py hold GIB SECONDS    so much memory, and products beside it

Each prints lines of JSON: "ready" once it has its memory, "copied" now and then, "done" at its end; with the time, the
pid, the bytes that it allocated, what CUDA says is free, and the bytes copied so far. It ends by itself.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

GIB = 1024**3
COPIED = 256 * 1024**2
SIDE = 8192


def tell(event: str, sent: int = 0, received: int = 0) -> None:
    """Print a line."""
    free, total = torch.cuda.mem_get_info()
    line = {
        "event": event,
        "at": time.time(),
        "pid": os.getpid(),
        # what the allocator has of the driver, not what tensors have of the allocator
        "allocated": torch.cuda.memory_reserved(),
        "free": free,
        "total": total,
        "to_gpu": sent,
        "from_gpu": received,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def product() -> Callable[[], Any]:
    """What multiplies two matrices once. The first call begins cuBLAS, which takes memory of its own."""
    left = torch.randn(SIDE, SIDE, dtype=torch.float16, device="cuda")
    right = torch.randn(SIDE, SIDE, dtype=torch.float16, device="cuda")
    result = torch.empty_like(left)
    torch.matmul(left, right, out=result)
    torch.cuda.synchronize()
    return lambda: torch.matmul(left, right, out=result)


def matmul(seconds: float) -> None:
    """Multiply, 20 products at a time."""
    multiply = product()
    tell("ready")
    until = time.time() + seconds
    while time.time() < until:
        for _ in range(20):
            multiply()
        torch.cuda.synchronize()
    tell("done")


def copy(seconds: float) -> None:
    """Copy to the GPU, then back."""
    here = torch.ones(COPIED, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    sent = received = 0
    tell("ready")
    began = time.time()
    while time.time() < began + seconds:
        for _ in range(20):
            if time.time() < began + seconds / 2:
                there.copy_(here)
                sent += COPIED
            else:
                here.copy_(there)
                received += COPIED
        torch.cuda.synchronize()
        tell("copied", sent, received)
    tell("done", sent, received)


def hold(gib: float, seconds: float) -> None:
    """Hold memory, and multiply."""
    held = torch.empty(int(gib * GIB), dtype=torch.uint8, device="cuda")
    held.fill_(1)
    multiply = product()
    tell("ready")
    until = time.time() + seconds
    while time.time() < until:
        multiply()
        torch.cuda.synchronize()
    tell("done")


MODES: dict[str, Callable[..., None]] = {"matmul": matmul, "copy": copy, "hold": hold}


if __name__ == "__main__":
    MODES[sys.argv[1]](*map(float, sys.argv[2:]))

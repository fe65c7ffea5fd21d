"""Chooses device and working dtype as users expect, and knows how much memory is free."""

from collections.abc import Sequence
from typing import Any

import psutil
import torch
from torch import Tensor

from unmask.errors import UnmaskError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def choose_device(name: str | torch.device | None = None) -> torch.device:
    """Return the named device, or the best one present: CUDA, then MPS, then CPU."""
    if name is None:
        if torch.cuda.is_available():
            name = "cuda"
        else:
            name = "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UnmaskError(f"{name!r} is no device; use cpu, cuda, cuda:1 or mps.") from None
    if device.type == "cuda":
        _require_cuda(device)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UnmaskError("The device mps is not available here; use --device cpu.")
    return device


def _require_cuda(device: torch.device) -> None:
    if not torch.cuda.is_available():
        raise UnmaskError(
            "No CUDA device can be used here (driver or CUDA build of torch missing); use --device cpu."
        )
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise UnmaskError(f"There is no {device}: this machine has {count} CUDA device(s), counted from 0.")


def choose_dtype(name: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """Return the named dtype, or the one that suits the device's arithmetic."""
    if isinstance(name, torch.dtype):
        return name
    if name is not None:
        if name not in DTYPES:
            raise UnmaskError(f"{name!r} is no dtype; use one of {', '.join(DTYPES)}.")
        return DTYPES[name]
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        if capability >= (8, 0):
            return torch.bfloat16
        return torch.float16 if capability >= (7, 0) else torch.float32
    return torch.float16 if device.type == "mps" else torch.float32


def exact_sums() -> None:
    """Let products of a GPU add up in fp32, whatever torch allows by itself (half precision and TF32 on the way)."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = matmul.allow_fp16_accumulation = False
    matmul.allow_fp16_reduced_precision_reduction = matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)


def upload(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Numbers of the host on a device; from pinned memory where there is such, so that nobody waits for the copy."""
    pinned = device.type == "cuda"
    return torch.tensor(numbers, pin_memory=pinned).to(device, non_blocking=True)


def free_bytes(device: torch.device) -> int | None:
    """Memory that a new allocation may use; None where it cannot be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu":
        return int(psutil.virtual_memory().available)
    return None


def instruction_set(device: torch.device, dtype: torch.dtype) -> str | None:
    """The CPU's vector instructions, for the table of layouts; None where it does not apply."""
    if device.type != "cpu":
        return None
    packs = dtype == torch.float32 and torch._C._has_mkldnn
    return torch.backends.cpu.get_cpu_capability() if packs else "other"

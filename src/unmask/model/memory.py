"""How much memory a checkpoint takes while it decodes; arithmetic on a config, without torch.

Weights and key/value buffers are exact. What a forward writes to is that of the largest one; what Python and
torch take for themselves was measured (benchmarks/memory.py).
"""

import platform
from pathlib import Path

from unmask.model.config import ModelConfig
from unmask.model.layouts import choose_layout

PREFILL_ROWS = 1024
"""Rows of one forward of several requests or of a long prompt, so that they need no memory in proportion."""
MOST_LOGITS = 1 << 26
"""Logits that are computed at a time: a quarter of a GiB in single precision."""
FP32 = 4
PROCESS_BYTES = 265 << 20
"""An interpreter that has imported torch for CPUs: 250 MiB were measured on an Intel Xeon, 280 MiB on an AMD EPYC."""


def weight_bytes(config: ModelConfig, bytes_per_element: int) -> int:
    """Size of all weights, a tied head counted once."""
    return config.parameters * bytes_per_element


def kv_bytes(config: ModelConfig, slots: int, length: int, bytes_per_element: int) -> int:
    """Size of the key/value buffers, for planning before anything is allocated."""
    return 2 * config.num_layers * slots * length * config.num_kv_heads * config.head_dim * bytes_per_element


def packing_bytes(config: ModelConfig, bytes_per_element: int, instructions: str) -> int:
    """What packing a head for a CPU takes besides the weights: a tied one is kept twice, any other for a moment."""
    packed = choose_layout(config.hidden_size, config.vocab_size, instructions) == "packed"
    return config.hidden_size * config.vocab_size * bytes_per_element if packed else 0


def buffer_bytes(config: ModelConfig, slots: int, length: int, bytes_per_element: int) -> int:
    """What the largest forward writes to, and the logits that are read from one."""
    block = length if config.family.canvas else config.block_size or 1
    rows = min(slots * length, max(PREFILL_ROWS, block))
    read = config.family.sub_block_size or block
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    stream = 3 * config.hidden_size  # itself, its norm, a branch's change
    attention = 4 * queries + 4 * keys  # projected, rotated, stacked, mixed, written
    mlp = 3 * config.intermediate_size  # gate, up, and the copy that a packed product makes of their product
    narrow = bytes_per_element < FP32
    norms = 2 * FP32 * config.hidden_size if narrow else 0
    logits = min(slots * read * config.vocab_size, max(MOST_LOGITS, config.vocab_size))
    logits *= FP32 + bytes_per_element * narrow
    return rows * ((stream + attention + mlp) * bytes_per_element + norms) + logits


def guessed_instructions() -> str:
    """The CPU's instruction set as torch would name it, without asking torch."""
    try:
        content = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    flags = set(next((line for line in content.splitlines() if line.startswith("flags")), "").split())
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"} <= flags:
        return "AVX512"
    return "AVX2" if {"avx2", "fma"} <= flags else platform.machine()

"""How much memory a checkpoint and its key/value buffers take; arithmetic on a config, without torch."""

from unmask.model.config import ModelConfig


def weight_bytes(config: ModelConfig, bytes_per_element: int) -> int:
    """Size of all weights, a tied head counted once."""
    return config.parameters * bytes_per_element


def kv_bytes(config: ModelConfig, slots: int, columns: int, bytes_per_element: int) -> int:
    """Size of the key/value buffers, for planning before anything is allocated."""
    return 2 * config.num_layers * slots * columns * config.num_kv_heads * config.head_dim * bytes_per_element

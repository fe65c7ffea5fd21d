"""The architecture of a checkpoint, read from its config.json.

Knows which architectures the transformer can run and what each field means; it does not know where
a checkpoint comes from, nor its weights.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from unmask.cost import ModelShape
from unmask.errors import UnmaskError

RUNNABLE = {"Fast_dLLM_Qwen", "qwen2"}


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a checkpoint's shape that the engine needs; nothing is taken from a constant."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_positions: int
    tied_head: bool
    block_size: int | None = None
    mask_token_id: int | None = None
    stop_tokens: tuple[int, ...] = ()
    stored_dtype: str | None = None

    @property
    def queries_per_kv(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def shape(self) -> ModelShape:
        """The numbers that costs depend on."""
        return ModelShape(
            layers=self.num_layers,
            hidden=self.hidden_size,
            ffn=self.intermediate_size,
            heads=self.num_heads,
            kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            vocabulary=self.vocab_size,
        )

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of every tensor that a checkpoint of this architecture holds."""
        hidden, ffn = self.hidden_size, self.intermediate_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden),
            "model.norm.weight": (hidden,),
        }
        if not self.tied_head:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        for index in range(self.num_layers):
            prefix = f"model.layers.{index}."
            shapes[prefix + "input_layernorm.weight"] = (hidden,)
            shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
            for name, width in (("q", queries), ("k", keys), ("v", keys)):
                shapes[f"{prefix}self_attn.{name}_proj.weight"] = (width, hidden)
                shapes[f"{prefix}self_attn.{name}_proj.bias"] = (width,)
            shapes[prefix + "self_attn.o_proj.weight"] = (hidden, queries)
            shapes[prefix + "mlp.gate_proj.weight"] = (ffn, hidden)
            shapes[prefix + "mlp.up_proj.weight"] = (ffn, hidden)
            shapes[prefix + "mlp.down_proj.weight"] = (hidden, ffn)
        return shapes

    @property
    def parameters(self) -> int:
        """Number of parameters, a tied head counted once."""
        total = 0
        for shape in self.tensor_shapes().values():
            count = 1
            for size in shape:
                count *= size
            total += count
        return total


def read_config(folder: Path) -> ModelConfig:
    """Read config.json (and generation_config.json, where there is one) of a checkpoint folder."""
    raw = read_json(folder / "config.json", missing=f"{folder} is not a checkpoint: it has no config.json.")
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file, missing="") if generation_file.is_file() else {}
    return parse_config(raw, generation, source=str(folder / "config.json"))


def parse_config(raw: dict[str, Any], generation: dict[str, Any], source: str) -> ModelConfig:
    """Make a ModelConfig of the two files' contents; `source` names the file in errors."""
    _refuse_unknown_architecture(raw, source)
    heads = _positive(raw, "num_attention_heads", source)
    hidden = _positive(raw, "hidden_size", source)
    kv_heads = _optional(raw, "num_key_value_heads", source) or heads
    head_dim = _optional(raw, "head_dim", source) or hidden // heads
    if heads % kv_heads or head_dim * heads != hidden or head_dim % 2:
        raise UnmaskError(
            f"{source}: {heads} heads, {kv_heads} key/value heads and hidden size {hidden} do not fit each other."
        )
    return ModelConfig(
        hidden_size=hidden,
        intermediate_size=_positive(raw, "intermediate_size", source),
        num_layers=_positive(raw, "num_hidden_layers", source),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_positive(raw, "vocab_size", source),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=_rope_theta(raw, source),
        max_positions=_positive(raw, "max_position_embeddings", source),
        tied_head=bool(raw.get("tie_word_embeddings", False)),
        block_size=_optional(raw, "bd_size", source),
        mask_token_id=next(iter(_ids(raw, "mask_token_id", source)), None),
        stop_tokens=_ids(generation, "eos_token_id", "generation_config.json")
        or _ids(raw, "eos_token_id", source),
        stored_dtype=raw.get("dtype") or raw.get("torch_dtype"),
    )


def read_json(path: Path, missing: str) -> dict[str, Any]:
    """Read a JSON object; say so in one sentence when there is none or it is broken."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnmaskError(missing) from None
    except (OSError, ValueError) as error:
        raise UnmaskError(
            f"{path} cannot be read as JSON ({error}); download the checkpoint again."
        ) from None
    if not isinstance(content, dict):
        raise UnmaskError(f"{path} holds no JSON object; download the checkpoint again.")
    return content


def _refuse_unknown_architecture(raw: dict[str, Any], source: str) -> None:
    kind = raw.get("model_type")
    if kind not in RUNNABLE:
        known = ", ".join(sorted(RUNNABLE))
        raise UnmaskError(f"{source}: architecture {kind!r} cannot be run; this engine runs {known}.")
    if raw.get("hidden_act", "silu") != "silu":
        raise UnmaskError(
            f"{source}: activation {raw['hidden_act']!r} cannot be run; Qwen2 checkpoints use 'silu'."
        )
    if raw.get("use_sliding_window"):
        raise UnmaskError(
            f"{source}: sliding-window attention cannot be run; set use_sliding_window to false."
        )


def _positive(raw: dict[str, Any], field: str, source: str) -> int:
    value = raw.get(field)
    if not isinstance(value, int) or value < 1:
        raise UnmaskError(f"{source}: {field} is {value!r}; a positive integer is needed.")
    return value


def _optional(raw: dict[str, Any], field: str, source: str) -> int | None:
    return None if raw.get(field) is None else _positive(raw, field, source)


def _rope_theta(raw: dict[str, Any], source: str) -> float:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UnmaskError(f"{source}: rope type {kind!r} cannot be run; only unscaled rotary positions are.")
    return float(raw.get("rope_theta") or rope.get("rope_theta") or 10_000.0)


def _ids(raw: dict[str, Any], field: str, source: str) -> tuple[int, ...]:
    value = raw.get(field)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) for token in ids):
        raise UnmaskError(f"{source}: {field} is {value!r}; a token id or a list of them is needed.")
    return tuple(ids)

"""The architecture of a checkpoint, read from its config.json.

Knows which architectures the transformer can run and what each field means; it does not know where
a checkpoint comes from, nor its weights.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from unmask.cost import ModelShape
from unmask.errors import UnmaskError
from unmask.model.network import LAYER, NETWORKS, Network, Part
from unmask.reading import parse_json, read_plain
from unmask.spec.build import shown
from unmask.spec.decode import DecodeSpec, ResolvedSpec
from unmask.spec.family import Family, family_of

CONFIG_FILE = "config.json"
MOST = {
    "num_hidden_layers": 1024,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 4096,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "vocab_size": 1 << 24,
    "max_position_embeddings": 1 << 24,
    "bd_size": 4096,
    "block_size": 4096,
}
"""Far more than any checkpoint has; a larger number is a slip or an attack, and would be allocated."""
LARGEST_ID = (1 << 31) - 1
LARGEST_NUMBER = 1e30


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
    network: Network
    family: Family
    block_size: int | None = None
    """Positions of a block: the config's, else the family's; None where only decode settings can say it."""
    mask_token_id: int | None = None
    stop_tokens: tuple[int, ...] = ()
    stored_dtype: str | None = None

    def decoded(self, decode: DecodeSpec) -> ResolvedSpec:
        """Decode settings with everything filled in that they leave to the checkpoint."""
        return decode.resolved(self.family, self.block_size)

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

    def part_shapes(self) -> dict[Part, tuple[int, ...]]:
        """The shape of every part of the network; the layers are alike."""
        hidden, ffn, width = self.hidden_size, self.intermediate_size, self.head_dim
        queries, keys = self.num_heads * width, self.num_kv_heads * width
        shapes: dict[Part, tuple[int, ...]] = {
            "embedding": (self.vocab_size, hidden),
            "norm": (hidden,),
            "attention_norm": (hidden,),
            "query": (queries, hidden),
            "key": (keys, hidden),
            "value": (keys, hidden),
            "attention_out": (hidden, queries),
            "mlp_norm": (hidden,),
            "gate": (ffn, hidden),
            "up": (ffn, hidden),
            "down": (hidden, ffn),
        }
        if not self.tied_head:
            shapes["head"] = (self.vocab_size, hidden)
        if self.network.qkv_bias:
            shapes |= {"query_bias": (queries,), "key_bias": (keys,), "value_bias": (keys,)}
        if self.network.qk_norm:
            shapes |= {"query_norm": (width,), "key_norm": (width,)}
        return shapes

    def places(self) -> dict[str, tuple[Part, int | None]]:
        """Where every tensor of a checkpoint belongs, by its name: its part, and the layer if it is one of a layer."""
        places: dict[str, tuple[Part, int | None]] = {}
        for part in self.part_shapes():
            name = self.network.names[part]
            for layer in range(self.num_layers) if LAYER in name else (None,):
                places[name.replace(LAYER, str(layer))] = part, layer
        return places

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of every tensor that a checkpoint of this architecture holds."""
        shapes = self.part_shapes()
        return {name: shapes[part] for name, (part, _) in self.places().items()}

    @property
    def parameters(self) -> int:
        """Number of parameters, a tied head counted once."""
        return sum(prod(shape) for shape in self.tensor_shapes().values())


def read_config(folder: Path) -> ModelConfig:
    """Read config.json (and generation_config.json, where there is one) of a checkpoint folder."""
    raw = read_json(folder / CONFIG_FILE, missing=f"{folder} is not a checkpoint: it has no {CONFIG_FILE}.")
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file, missing="") if generation_file.is_file() else {}
    return parse_config(raw, generation, source=str(folder / CONFIG_FILE))


def parse_config(raw: dict[str, Any], generation: dict[str, Any], source: str) -> ModelConfig:
    """Make a ModelConfig of the two files' contents; `source` names the file in errors."""
    network, family = _architecture(raw, source)
    names = {ours: theirs for ours, theirs in network.fields.items() if raw.get(theirs) is not None}
    heads = _positive(raw, "num_attention_heads", source, names)
    hidden = _positive(raw, "hidden_size", source, names)
    kv_heads = _optional(raw, "num_key_value_heads", source, names) or heads
    head_dim = _optional(raw, "head_dim", source) or hidden // heads
    own_head_dim = raw.get("head_dim") is not None
    if heads % kv_heads or head_dim % 2 or (hidden % heads and not own_head_dim):
        raise UnmaskError(
            f"{source}: {heads} heads, {kv_heads} key/value heads and hidden size {hidden} do not fit each other."
        )
    return ModelConfig(
        hidden_size=hidden,
        intermediate_size=_positive(raw, "intermediate_size", source, names),
        num_layers=_positive(raw, "num_hidden_layers", source, names),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_positive(raw, "vocab_size", source, names),
        rms_norm_eps=_number(raw, "rms_norm_eps", network.norm_eps, source),
        rope_theta=_rope_theta(raw, source),
        max_positions=_positive(raw, "max_position_embeddings", source, names),
        tied_head=_flag(raw, names.get("tie_word_embeddings", "tie_word_embeddings"), source),
        network=network,
        family=family,
        block_size=(family.block_field and _optional(raw, family.block_field, source)) or family.block_size,
        mask_token_id=next(iter(_ids(raw, "mask_token_id", source)), None),
        stop_tokens=_ids(generation, "eos_token_id", "generation_config.json")
        or _ids(raw, "eos_token_id", source),
        stored_dtype=_word(raw, "dtype", source) or _word(raw, "torch_dtype", source),
    )


def read_json(path: Path, missing: str) -> dict[str, Any]:
    """Read a JSON object; say so in one sentence when there is none or it is broken."""
    try:
        content = parse_json(read_plain(path), finite=False)
    except FileNotFoundError:
        raise UnmaskError(missing) from None
    except OSError as error:
        raise UnmaskError(
            f"{path} cannot be read ({error.strerror}); download the checkpoint again."
        ) from None
    except ValueError as error:
        raise UnmaskError(
            f"{path} cannot be read as JSON ({error}); download the checkpoint again."
        ) from None
    if not isinstance(content, dict):
        raise UnmaskError(f"{path} holds no JSON object; download the checkpoint again.")
    return content


def _architecture(raw: dict[str, Any], source: str) -> tuple[Network, Family]:
    """The network and the family of a config.json; what cannot be run is refused."""
    kind, family = raw.get("model_type"), family_of(raw)
    network = NETWORKS.get(kind) if isinstance(kind, str) else None
    mixture = any("experts" in field and raw[field] for field in raw)
    if network is None or family is None or mixture:
        what = "is a mixture of experts and " if mixture else ""
        raise UnmaskError(
            f"{source}: architecture {shown(kind)} {what}cannot be run; this engine runs the dense architectures "
            f"{', '.join(NETWORKS)}."
        )
    for field, value in network.required.items():
        if raw.get(field) is not None and raw[field] != value:
            raise UnmaskError(
                f"{source}: {field} is {shown(raw[field])}, which cannot be run; {network.title} checkpoints run "
                f"with {shown(value)} only."
            )
    if network.bias_field is not None:
        network = msgspec.structs.replace(network, qkv_bias=_flag(raw, network.bias_field, source))
    return network, family


def _positive(raw: dict[str, Any], field: str, source: str, names: Mapping[str, str] = {}) -> int:
    """A field's value; `names` says what the file calls it."""
    called = names.get(field, field)
    value = raw.get(called)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnmaskError(f"{source}: {called} is {shown(value)}; a positive integer is needed.")
    if value > MOST.get(field, value):
        raise UnmaskError(f"{source}: {called} is {shown(value)}; this engine takes {MOST[field]} at most.")
    return value


def _number(raw: dict[str, Any], field: str, default: float, source: str) -> float:
    value = raw.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LARGEST_NUMBER:
        raise UnmaskError(f"{source}: {field} is {shown(value)}; a positive, finite number is needed.")
    return float(value)


def _flag(raw: dict[str, Any], field: str, source: str) -> bool:
    value = raw.get(field)
    if value is not None and not isinstance(value, bool):
        raise UnmaskError(f"{source}: {field} is {shown(value)}; true or false is needed.")
    return bool(value)


def _word(raw: dict[str, Any], field: str, source: str) -> str | None:
    value = raw.get(field)
    if value is not None and not isinstance(value, str):
        raise UnmaskError(f"{source}: {field} is {shown(value)}; a word is needed.")
    return value


def _optional(raw: dict[str, Any], field: str, source: str, names: Mapping[str, str] = {}) -> int | None:
    missing = raw.get(names.get(field, field)) is None
    return None if missing else _positive(raw, field, source, names)


def _rope_theta(raw: dict[str, Any], source: str) -> float:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise UnmaskError(f"{source}: rope_parameters is {shown(rope)}; an object is needed.")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise UnmaskError(
            f"{source}: rope type {shown(kind)} cannot be run; only unscaled rotary positions are."
        )
    return _number(raw if raw.get("rope_theta") is not None else rope, "rope_theta", 10_000.0, source)


def _ids(raw: dict[str, Any], field: str, source: str) -> tuple[int, ...]:
    value = raw.get(field)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int and 0 <= token <= LARGEST_ID for token in ids):
        raise UnmaskError(f"{source}: {field} is {shown(value)}; a token id or a list of them is needed.")
    return tuple(ids)

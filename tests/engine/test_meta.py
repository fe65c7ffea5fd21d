"""A model of the real size goes through every path on the meta device: shapes and dtypes, no numbers."""

import pytest
import torch

from unmask.engine.forward import Workspace
from unmask.engine.sampling import GREEDY, packed_predictions
from unmask.model.config import parse_config
from unmask.model.geometry import Segment
from unmask.model.memory import kv_bytes, weight_bytes
from unmask.model.weights import empty_transformer

META = torch.device("meta")
CONFIG = parse_config(
    {
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "model_type": "Fast_dLLM_Qwen",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "bd_size": 32,
    },
    {"eos_token_id": [151645, 151643]},
    source="7B",
)
COLUMNS = 160
FORWARDS = {
    "prefill of three blocks": [Segment(0, range(start, start + 32), start + 32) for start in (0, 32, 64)],
    "prefill of two requests": [
        Segment(slot, range(start, start + 32), start + 32) for slot in (0, 2) for start in (0, 32)
    ],
    "one block": [Segment(0, range(96, 128), 128)],
    "one sub-block": [Segment(0, range(104, 112), 128)],
    "blocks side by side": [Segment(slot, range(96, 128), 128) for slot in (0, 1, 2)],
    "blocks of unequal prefixes": [Segment(0, range(96, 128), 128), Segment(2, range(32), 32)],
    "sub-blocks": [Segment(0, range(104, 112), 128), Segment(1, range(8, 16), 32)],
    "sub-block, block and commit": [
        Segment(3, range(24, 32), 32),
        Segment(0, range(96, 128), 128),
        Segment(1, range(128, 160), 160),
    ],
}


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float16, torch.float32], ids=str)
def workspace(request: pytest.FixtureRequest) -> Workspace:
    transformer = empty_transformer(CONFIG, META, request.param)
    return Workspace(transformer, 4, COLUMNS, 32)


@pytest.mark.parametrize("path", FORWARDS)
def test_every_path_of_a_7b_model(workspace: Workspace, path: str) -> None:
    segments = FORWARDS[path]
    rows = sum(len(segment.positions) for segment in segments)
    with torch.inference_mode():
        hidden = workspace.forward([1] * rows, segments).hidden_TD
        assert (hidden.shape, hidden.dtype) == ((rows, 3584), workspace.transformer.stream_dtype)
        logits = workspace.transformer.logits(hidden[torch.tensor([0, rows - 1]).to(META)])
    assert (logits.shape, logits.dtype, logits.device) == ((2, 152064), torch.float32, META)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("rows", [1, 8])
def test_candidates_are_packed_for_one_copy(workspace: Workspace, rows: int, temperature: float) -> None:
    hidden = torch.empty(rows, 3584, device=META, dtype=workspace.transformer.dtype)
    with torch.inference_mode():
        logits = workspace.transformer.logits(hidden)
        packed = packed_predictions(logits, 151665, [GREEDY] + [0.5] * (rows - 1), temperature, 0.95)
    assert (packed.shape, packed.dtype) == ((2, rows), torch.float32)


def test_the_sizes_are_those_of_the_model_card() -> None:
    assert CONFIG.parameters == 7_615_616_512
    assert round(weight_bytes(CONFIG, 2) / (1 << 30), 1) == 14.2
    assert kv_bytes(CONFIG, slots=1, length=32768, bytes_per_element=2) == 28 * 2 * 32768 * 4 * 128 * 2
    transformer = empty_transformer(CONFIG, META, torch.bfloat16)
    held = [transformer.embedding_VD, transformer.norm_D]
    for layer in transformer.layers:
        held += [layer.attention_norm_D, layer.mlp_norm_D, layer.qkv.bias_O]
    products = sum(projection.weight_OI.numel() for projection in transformer.projections())
    assert sum(tensor.numel() for tensor in held) + products == CONFIG.parameters


def test_keys_and_values_take_what_planning_says(workspace: Workspace) -> None:
    cache = workspace.cache
    taken = sum(layer.numel() * layer.element_size() for layer in (cache.keys_LBKCd, cache.values_LBKCd))
    assert taken == kv_bytes(CONFIG, 4, COLUMNS, workspace.transformer.dtype.itemsize)

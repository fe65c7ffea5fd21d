"""Tokens of autoregressive checkpoints equal those of transformers' greedy generate, on random and on real weights."""

import random
from pathlib import Path
from typing import Any

import pytest

import unmask
from checkpoints import MASK, small_config
from environments import VERSIONS, ask, smollm2
from unmask.model.synthetic import write_checkpoint

SCRIPT = Path(__file__).with_name("transformers_generates.py")
TIE = 1e-3
"""Logits nearer than this may be taken for each other: sums in another order differ by a tenth of it."""
RANDOM: dict[str, dict[str, Any]] = {
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen2 tied": {"model_type": "qwen2", "num_key_value_heads": 1, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 16},
    "qwen3 wide": {"model_type": "qwen3", "head_dim": 24, "num_attention_heads": 6, "num_hidden_layers": 5},
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    "llama tied": {"model_type": "llama", "num_key_value_heads": 4, "tie_word_embeddings": True},
}
LENGTHS = (1, 2, 31, 32, 33, 100, 700)
TOPICS = [
    "What is the capital of France?",
    "Name three animals that live in the sea.",
    "Why is the sky blue?",
    "Write a short poem about rain.",
    "What is 12 plus 30?",
    "Explain what a prime number is.",
    "Translate 'good morning' into Spanish.",
    "How do I boil an egg?",
    "Who wrote Hamlet?",
    "List the days of the week.",
    "What is photosynthesis?",
    "Tell me a joke about cats.",
    "Give me two reasons to exercise.",
    "Write a Python function that adds two numbers.",
    "What colour do blue and yellow make?",
    "Describe a winter evening in one sentence.",
    "What is the largest planet?",
    "How many legs does a spider have?",
    "Suggest a name for a small bakery.",
    "Summarise the story of Cinderella.",
]


def random_weights(folder: Path, **changes: Any) -> Path:
    config = small_config(**changes)
    del config["bd_size"], config["mask_token_id"]
    recipe = {"kind": "numpy-randomstate-sdar-v1", "seed": 7, "logit_scale": 8.0, "config": config}
    return write_checkpoint(recipe, folder)


def differences(found: list[int], expected: dict[str, Any]) -> int | None:
    """Where two answers part first; None where nowhere, and an error where it is not at a tie."""
    assert len(found) == len(expected["ids"])
    places = [
        at for at, (ours, theirs) in enumerate(zip(found, expected["ids"], strict=True)) if ours != theirs
    ]
    if not places:
        return None
    assert expected["gaps"][places[0]] < TIE, f"token {places[0]} differs, and no tie is there"
    return places[0]


@pytest.mark.slow
@pytest.mark.parametrize("major", VERSIONS)
def test_random_weights(major: int, tmp_path: Path) -> None:
    draw = random.Random(11)
    prompts = [[draw.randrange(MASK) for _ in range(length)] for length in LENGTHS]
    folders = [random_weights(tmp_path / name, **changes) for name, changes in RANDOM.items()]
    questions = [{"folder": str(folder), "prompts": prompts, "new_tokens": 60} for folder in folders]
    theirs = ask(SCRIPT, major, questions, with_torch=True)
    parted = 0
    for folder, expected in zip(folders, theirs, strict=True):
        engine = unmask.load(folder)
        for batch_size in (1, 4):
            answers = engine.generate(
                prompts, {"max_new_tokens": 60, "stop_tokens": ()}, batch_size=batch_size
            )
            places = [differences(answer.ids, other) for answer, other in zip(answers, expected, strict=True)]
            parted += sum(place is not None for place in places)
    assert parted <= 2


@pytest.mark.slow
def test_real_weights() -> None:
    """SmolLM2-135M-Instruct in fp32, twenty questions of a hundred tokens each."""
    folder = smollm2()
    engine = unmask.load(folder, dtype="float32")
    tokenizer = engine.tokenizer
    prompts = [
        tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": topic}]), special=False)
        for topic in TOPICS
    ]
    (theirs,) = ask(
        SCRIPT, 5, [{"folder": str(folder), "prompts": prompts, "new_tokens": 100}], with_torch=True
    )
    answers = engine.generate(prompts, {"max_new_tokens": 100, "stop_tokens": ()}, batch_size=4)
    parted = [
        place
        for answer, expected in zip(answers, theirs, strict=True)
        if (place := differences(answer.ids, expected)) is not None
    ]
    assert len(parted) <= 2
    (paris,) = engine.generate(TOPICS[0], {"max_new_tokens": 30}, chat=True)
    assert paris.text is not None
    assert "Paris" in paris.text
    assert paris.finish_reason == "stop"

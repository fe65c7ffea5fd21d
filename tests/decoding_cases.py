"""What hypothesis draws: small random models, prompts of awkward lengths, decode settings."""

from hypothesis import strategies as st

from checkpoints import MASK, Model, small_model
from unmask.engine.prompt import Request
from unmask.spec import DecodeSpec
from unmask.spec.family import CacheName

SHAPES = (
    {"seed": 0, "num_hidden_layers": 2},
    {"seed": 1, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1},
    {"seed": 2, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2},
    {"seed": 3, "num_hidden_layers": 2, "tie_word_embeddings": True},
)
AWKWARD_LENGTHS = (1, 31, 32, 33, 63, 64, 65, 96)


def models() -> st.SearchStrategy[Model]:
    """One of a few small models: grouped, single and equal key heads, tied and untied."""
    return st.sampled_from(SHAPES).map(lambda shape: small_model(**shape))


def prompts(longest: int = 70) -> st.SearchStrategy[list[int]]:
    """Token ids without MASK; lengths at and beside block boundaries come up often."""
    awkward = [length for length in AWKWARD_LENGTHS if length <= longest]
    lengths = st.one_of(st.integers(1, longest), st.sampled_from(awkward))
    tokens = st.integers(0, MASK - 1)
    return lengths.flatmap(lambda length: st.lists(tokens, min_size=length, max_size=length))


def requests(longest: int = 70, most_new: int = 40) -> st.SearchStrategy[Request]:
    """A prompt that says itself how many tokens it wants."""
    return st.builds(Request, prompts(longest), st.integers(1, most_new))


@st.composite
def specs(
    draw: st.DrawFn,
    cache: CacheName | None = None,
    sub_block_size: int | None = None,
    threshold: float | None = None,
    stops: bool = True,
    max_new_tokens: int = 40,
) -> DecodeSpec:
    """Decode settings at temperature 0; what is given is fixed."""
    block_size = draw(st.sampled_from((8, 16, 32)))
    sub_blocks = [size for size in (1, 2, 4, 8, 16, 32) if size <= block_size]
    thresholds = st.one_of(st.floats(0.2, 1.0), st.sampled_from((0.5, 0.9, 1.0)))
    stop_tokens = st.sampled_from(((), (5,), (40, 41, 42, 43)))
    return DecodeSpec(
        max_new_tokens=max_new_tokens,
        block_size=block_size,
        sub_block_size=sub_block_size or draw(st.sampled_from(sub_blocks)),
        threshold=threshold or draw(thresholds),
        cache=cache or draw(st.sampled_from(("dual", "none"))),
        stop_tokens=draw(stop_tokens) if stops else (),
    )

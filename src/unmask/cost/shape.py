"""The few numbers of an architecture that its costs depend on."""

from collections.abc import Mapping
from dataclasses import dataclass

from unmask.errors import UnmaskError


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Widths and counts of a Qwen2-like transformer."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @classmethod
    def of(cls, numbers: Mapping[str, int]) -> "ModelShape":
        """The shape that a lock or a result wrote down."""
        try:
            return cls(**numbers)
        except TypeError:
            raise UnmaskError(
                f"A checkpoint's shape has the numbers {', '.join(cls.__slots__)}, but {', '.join(numbers) or 'none'} "
                "are written down; run `unmask prepare` again."
            ) from None

    @property
    def attention_weights(self) -> int:
        """Elements of one layer's query, key, value and output matrices."""
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def mlp_weights(self) -> int:
        """Elements of one layer's gate, up and down matrices."""
        return 3 * self.hidden * self.ffn

    @property
    def head_weights(self) -> int:
        """Elements of the output head."""
        return self.hidden * self.vocabulary

    @property
    def kv_width(self) -> int:
        """Elements of one position's key and value in one layer."""
        return 2 * self.kv_heads * self.head_dim

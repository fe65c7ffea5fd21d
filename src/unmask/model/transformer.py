"""The decoder of Qwen2, Qwen3 and Llama in plain PyTorch, as two branches a layer that add to a residual stream.

Knows the arithmetic of one layer and of the head. It does not know about blocks, masks, denoising
steps or policies: the engine decides which branches run on which rows (see engine/forward.py).

Shape legend: T rows of a forward, D hidden, F MLP width, V vocabulary, N rows whose logits are read, X heads of
queries and keys, d head dim.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.model.config import ModelConfig
from unmask.model.frame import Frame
from unmask.model.projection import Projection


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer; queries, keys and values are one product, gate and up another."""

    attention_norm_D: Tensor
    qkv: Projection
    qk_norms: tuple[Tensor, Tensor] | None
    """What a head's queries and its keys are scaled with once they are normalised; None where they are not."""
    attention_out: Projection
    mlp_norm_D: Tensor
    gate_up: Projection
    down: Projection


class Transformer:
    """Embedding, layers and head; every method is a function of its inputs, but for what it leaves in the frame."""

    def __init__(
        self,
        config: ModelConfig,
        embedding_VD: Tensor,
        layers: tuple[Layer, ...],
        norm_D: Tensor,
        head: Projection,
    ) -> None:
        self.config = config
        self.embedding_VD = embedding_VD
        self.layers = layers
        self.norm_D = norm_D
        self.head = head
        self._eps = torch.full((1, 1), config.rms_norm_eps, device=embedding_VD.device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding_VD.device

    @property
    def dtype(self) -> torch.dtype:
        """The working dtype: that of weights, products, keys and values."""
        return self.embedding_VD.dtype

    @property
    def stream_dtype(self) -> torch.dtype:
        """The residual stream's: large activations of Qwen2.5 add up to more than fp16 can hold."""
        return torch.float32

    def projections(self) -> Iterator[Projection]:
        """All products with a weight, the head last."""
        for layer in self.layers:
            yield from (layer.qkv, layer.attention_out, layer.gate_up, layer.down)
        yield self.head

    @property
    def layouts(self) -> dict[str, str]:
        """How the weights of each product are stored; layers are alike."""
        named = {name: getattr(self.layers[0], name) for name in ("qkv", "attention_out", "gate_up", "down")}
        return {name: projection.layout for name, projection in (named | {"head": self.head}).items()}

    def embed(self, tokens_T: Tensor) -> Tensor:
        """Look up the residual stream's first state."""
        return F.embedding(tokens_T, self.embedding_VD).to(self.stream_dtype)

    def attention(self, index: int, x_TD: Tensor, frame: Frame) -> Tensor:
        """Return the attention branch's change of the stream; writes the rows' keys and values."""
        layer = self.layers[index]
        layer.qkv(self._norm(x_TD, layer.attention_norm_D, frame), out_TO=frame.qkv_TX)
        if layer.qk_norms is not None:
            self._normalise_heads(frame, *layer.qk_norms)
        frame.rotate()
        frame.write(index)
        return layer.attention_out(frame.attend(index))

    def mlp(self, index: int, x_TD: Tensor, frame: Frame) -> Tensor:
        """Return the MLP branch's change of the stream."""
        layer = self.layers[index]
        gate_TF, up_TF = layer.gate_up(self._norm(x_TD, layer.mlp_norm_D, frame)).chunk(2, dim=-1)
        return layer.down(F.silu(gate_TF, inplace=True).mul_(up_TF))

    def logits(self, x_ND: Tensor) -> Tensor:
        """Read final hidden states as next-token logits in fp32."""
        return self.head(self._rms_norm(x_ND, self.norm_D)).float()

    def _norm(self, x_TD: Tensor, weight_D: Tensor, frame: Frame) -> Tensor:
        """The norm; in fp32 on a CPU as a handful of cheap operations into buffers."""
        if weight_D.dtype != torch.float32 or x_TD.device.type != "cpu":
            return self._rms_norm(x_TD, weight_D)
        scale_T1 = self._inverse_rms(x_TD, frame.length_T1)
        return torch.mul(x_TD, scale_T1, out=frame.normed_TD).mul_(weight_D)

    def _normalise_heads(self, frame: Frame, query_d: Tensor, key_d: Tensor) -> None:
        """Normalise every head's queries and keys where the product left them."""
        qk_TXd = frame.qk_TXd
        if qk_TXd.dtype == torch.float32 and qk_TXd.device.type == "cpu":
            qk_TXd.mul_(self._inverse_rms(qk_TXd, frame.head_length_TX1))
            frame.queries_THd.mul_(query_d)
            frame.keys_TKd.mul_(key_d)
        else:
            frame.queries_THd.copy_(self._rms_norm(frame.queries_THd, query_d))
            frame.keys_TKd.copy_(self._rms_norm(frame.keys_TKd, key_d))

    def _inverse_rms(self, x: Tensor, out: Tensor) -> Tensor:
        """What the last dimension of x is to be multiplied with, into a buffer."""
        torch.linalg.vector_norm(x, dim=-1, keepdim=True, out=out)
        return torch.addcmul(self._eps, out, out, value=1 / x.shape[-1], out=out).rsqrt_()

    def _rms_norm(self, x_TD: Tensor, weight_D: Tensor) -> Tensor:
        """The norm in fp32, rounded to the working dtype as models were trained: before the weight."""
        if weight_D.dtype == torch.float32:
            return F.rms_norm(x_TD, (x_TD.shape[-1],), weight_D, self.config.rms_norm_eps)
        scaled = F.rms_norm(x_TD.float(), (x_TD.shape[-1],), None, self.config.rms_norm_eps)
        return scaled.to(weight_D.dtype) * weight_D

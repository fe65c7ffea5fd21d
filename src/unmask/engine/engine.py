"""The object a user holds: a loaded checkpoint that generates from prompts."""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unmask.engine.decider import ByConfidence, Decider
from unmask.engine.decode import Decoder
from unmask.engine.events import Finished, Generation, StepEvent
from unmask.engine.forward import Workspace
from unmask.engine.policy import Full, Policy
from unmask.engine.prompt import Prompt, Request, as_requests, encode
from unmask.engine.row import BlockRules, Row
from unmask.engine.sampling import Sampler, request_seed
from unmask.engine.score import EstimatorName, Order, ScoreRequest, Scores, score
from unmask.engine.stopping import StopStrings
from unmask.errors import UnmaskError
from unmask.model.config import ModelConfig
from unmask.model.tokenizer import Tokenizer
from unmask.model.transformer import Transformer
from unmask.spec import DecodeSpec, build

DEFAULT_BATCH = 16
PolicyMaker = Callable[[Any, int], Policy]
"""Makes a policy of a spec or mapping for a model of so many layers."""


class Engine:
    """A transformer with its tokenizer."""

    def __init__(
        self,
        transformer: Transformer,
        mask_token: int,
        folder: Path | None = None,
        make_policy: PolicyMaker | None = None,
    ) -> None:
        self.transformer = transformer
        self.mask_token = mask_token
        self.folder = folder
        self._make_policy = make_policy
        self._tokenizer: Tokenizer | None = None

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self.transformer.config

    @property
    def has_tokenizer(self) -> bool:
        """Whether text can be read and written; token ids always can."""
        return self.folder is not None and (self.folder / "tokenizer.json").is_file()

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer, read when it is first needed."""
        if self._tokenizer is None:
            if self.folder is None:
                raise UnmaskError("This engine was built from weights alone; give prompts as token ids.")
            self._tokenizer = Tokenizer.from_folder(self.folder)
        return self._tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        decode: DecodeSpec | Mapping[str, Any] | None = None,
        policy: Any = None,
        batch_size: int = DEFAULT_BATCH,
    ) -> list[Generation]:
        """Answer every prompt; the answers are in the order of the prompts.

        `policy` is a spec, a mapping such as {"kind": "layer_reuse", "k": 2}, a policy object, or None
        for the baseline.
        """
        answers: dict[int, Generation] = {}
        for event in self.stream(prompts, decode, policy, batch_size):
            if isinstance(event, Finished):
                answers[event.request] = event.generation
        return [answers[index] for index in sorted(answers)]

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        decode: DecodeSpec | Mapping[str, Any] | None = None,
        policy: Any = None,
        batch_size: int = DEFAULT_BATCH,
        decider: Decider | None = None,
    ) -> Iterator[StepEvent | Finished]:
        """Yield every step as it happens and every answer when it is whole.

        When memory runs out the batch is halved and the unfinished requests are decoded again from
        their start: their steps are told a second time.
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise UnmaskError(f"batch_size is {batch_size}; it must be a whole number of at least 1.")
        spec = _decode_spec(decode)
        chosen = self._policy(policy)
        requests = as_requests(prompts)
        prompt_ids = [encode(request, self._text_ids, self._chat_ids) for request in requests]
        stops = StopStrings(spec.stop_strings, self.decode_text) if spec.stop_strings else None
        missing = list(range(len(requests)))
        while missing:
            rows = [self._row(index, requests[index], prompt_ids[index], spec) for index in missing]
            try:
                for event in self._decode(rows, spec, chosen, batch_size, stops, decider):
                    if isinstance(event, Row):
                        missing.remove(event.index)
                        yield Finished(event.index, self._generation(event, stops, batch_size))
                    else:
                        yield event
            except RuntimeError as error:
                batch_size = _halved(min(batch_size, len(missing)), error)

    def score(
        self,
        requests: Sequence[ScoreRequest],
        estimator: EstimatorName = "chain",
        order: Order = "confidence",
        decode: DecodeSpec | Mapping[str, Any] | None = None,
        policy: Any = None,
        batch_size: int = DEFAULT_BATCH,
        progress: Callable[[int], None] | None = None,
    ) -> Scores:
        """Score targets behind prefixes: generation with forced tokens, through the same forward and policies."""
        spec = _decode_spec(decode)
        return score(self, requests, estimator, order, spec, self._policy(policy), batch_size, progress)

    def _policy(self, policy: Any) -> Policy:
        if policy is None:
            return Full()
        return self._make_policy(policy, self.config.num_layers) if self._make_policy else policy

    def decode_text(self, ids: list[int]) -> str:
        """Token ids as text, special tokens left out."""
        return self.tokenizer.decode(ids)

    def workspace(self, slots: int, columns: int, block_size: int) -> Workspace:
        """Allocate the buffers of a decoding."""
        return Workspace(self.transformer, slots, columns, block_size)

    @torch.inference_mode()
    def _decode(
        self,
        rows: list[Row],
        spec: DecodeSpec,
        policy: Policy,
        batch_size: int,
        stops: StopStrings | None,
        decider: Decider | None,
    ) -> Iterator[StepEvent | Row]:
        size = rows[0].rules.block_size
        columns = max(-(-row.end // size) * size for row in rows)
        workspace = self.workspace(min(batch_size, len(rows)), columns, size)
        sampler = Sampler(self.mask_token, spec.temperature, spec.top_p)
        decoder = Decoder(workspace, policy, decider or ByConfidence(spec.threshold), sampler, stops)
        yield from decoder.run(rows)

    def _row(self, index: int, request: Request, ids: list[int], spec: DecodeSpec) -> Row:
        context = self.config.max_positions
        if len(ids) >= context:
            raise UnmaskError(
                f"A prompt has {len(ids)} tokens but the model's context is {context}; shorten it."
            )
        out_of_range = [token for token in ids if not 0 <= token < self.config.vocab_size]
        if out_of_range:
            raise UnmaskError(
                f"Token id {out_of_range[0]} is outside the vocabulary of {self.config.vocab_size} tokens."
            )
        if self.mask_token in ids:
            raise UnmaskError(
                f"A prompt holds the mask token {self.mask_token}, which stands for unknown positions; leave it out."
            )
        wanted = request.max_new_tokens if request.max_new_tokens is not None else spec.max_new_tokens
        if not isinstance(wanted, int) or wanted < 1:
            raise UnmaskError(f"max_new_tokens is {wanted}; it must be a whole number of at least 1.")
        if not isinstance(request.seed, int | None):
            raise UnmaskError(f"seed is {request.seed}; it must be a whole number.")
        stop_tokens = self.config.stop_tokens if spec.stop_tokens is None else spec.stop_tokens
        rules = BlockRules(
            block_size=spec.resolved_block_size(self.config.block_size),
            sub_block_size=spec.sub_block_size,
            block_cache=spec.block_cache,
            mask_token=self.mask_token,
            stop_tokens=frozenset(stop_tokens),
        )
        seed = request_seed(spec.seed, ids, request.repeat) if request.seed is None else request.seed
        room = context - len(ids)
        reason = "length" if wanted <= room else "context"
        return Row(index, ids, min(wanted, room), rules, self.config.num_layers, seed, reason)

    def _generation(self, row: Row, stops: StopStrings | None, batch_size: int) -> Generation:
        ids, reason = row.answer, row.finish_reason or row.end_reason
        text = None
        if self.has_tokenizer:
            text = self.decode_text(ids[:-1] if reason == "stop" else ids)
            text = stops.text_before(text) if stops else text
        return Generation(ids, text, reason, row.ledger, batch_size)

    def _text_ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def _chat_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.tokenizer.encode(self.tokenizer.render_chat(messages), special=False)


def _decode_spec(decode: DecodeSpec | Mapping[str, Any] | None) -> DecodeSpec:
    return decode if isinstance(decode, DecodeSpec) else build(DecodeSpec, decode or {}, "Decode settings")


def _halved(batch_size: int, error: RuntimeError) -> int:
    """The next batch size to try after memory ran out; other errors pass through."""
    message = str(error).lower()
    ran_out = isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in message
    if not ran_out:
        raise error
    if batch_size == 1:
        raise UnmaskError(
            "Memory ran out with a single request; lower max_new_tokens, shorten the prompt or use a smaller dtype."
        ) from None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    warnings.warn(
        f"Memory ran out: the batch is halved from {batch_size} to {batch_size // 2}.", stacklevel=3
    )
    return batch_size // 2

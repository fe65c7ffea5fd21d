"""The object a user holds: a loaded checkpoint that generates from prompts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unmask.engine.decode import Decoder
from unmask.engine.events import Finished, Generation, StepEvent, collect
from unmask.engine.forward import Observer, Workspace
from unmask.engine.halving import halved
from unmask.engine.policy import Full, Policy
from unmask.engine.prompt import Prompt, PromptEncoder, Request, as_requests
from unmask.engine.sampling import Sampler, request_seed
from unmask.engine.score import ScoreRequest, Scores, score
from unmask.engine.sequence import BlockSettings, SequenceState, room_for
from unmask.engine.stopping import StopStrings
from unmask.engine.unmasking import UnmaskingWriter
from unmask.errors import UnmaskError
from unmask.model.checkpoint import Checkpoint
from unmask.model.config import ModelConfig
from unmask.model.tokenizer import Tokenizer
from unmask.model.transformer import Transformer
from unmask.spec import DecodeSpec, build
from unmask.spec.decode import ResolvedSpec
from unmask.spec.family import EstimatorName
from unmask.spec.recipe import OrderName
from unmask.spec.rule import ScoreName

DEFAULT_BATCH = 16
PolicyMaker = Callable[[Any, int], Policy]
"""Makes a policy of a spec or mapping for a model of so many layers."""


class Engine:
    """A transformer with its tokenizer."""

    def __init__(
        self,
        transformer: Transformer,
        mask_token: int | None,
        checkpoint: Checkpoint | None = None,
        make_policy: PolicyMaker | None = None,
    ) -> None:
        self.transformer = transformer
        self.mask_token = mask_token
        self.checkpoint = checkpoint
        self._make_policy = make_policy
        self._encoder = PromptEncoder(transformer.config, mask_token, lambda: self.tokenizer)

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self.transformer.config

    @property
    def folder(self) -> Path | None:
        """The checkpoint's folder; None for an engine that was built from weights alone."""
        return self.checkpoint.folder if self.checkpoint else None

    @property
    def has_tokenizer(self) -> bool:
        """Whether text can be read and written; token ids always can."""
        return self.checkpoint is not None and self.checkpoint.has_tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer, read when it is first needed."""
        if self.checkpoint is None:
            raise UnmaskError("This engine was built from weights alone; give prompts as token ids.")
        return self.checkpoint.tokenizer

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        decode: DecodeSpec | Mapping[str, Any] | None = None,
        policy: Any = None,
        batch_size: int = DEFAULT_BATCH,
        *,
        rule: Any = None,
        chat: bool = False,
    ) -> list[Generation]:
        """Answer every prompt; the answers are in the order of the prompts.

        `policy` is a spec, a mapping such as {"kind": "layer_reuse", "k": 2}, a policy object, or None
        for the baseline; `rule`, an unmasking rule, is given likewise and wins over that of `decode`.
        Text is taken as it stands; with `chat` it is put through the checkpoint's chat template as a
        message of the user. Lists of messages always are.
        """
        return collect(self.stream(prompts, decode, policy, batch_size, rule, chat=chat))

    def stream(
        self,
        prompts: Prompt | Sequence[Prompt],
        decode: DecodeSpec | Mapping[str, Any] | None = None,
        policy: Any = None,
        batch_size: int = DEFAULT_BATCH,
        rule: Any = None,
        *,
        chat: bool = False,
        observer: Observer | None = None,
    ) -> Iterator[StepEvent | Finished]:
        """Yield every step as it happens and every answer when it is whole.

        When memory runs out the batch is halved and the unfinished requests are decoded again from
        their start: their steps are yielded a second time.
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise UnmaskError(f"batch_size is {batch_size}; it must be a whole number of at least 1.")
        spec = self.config.decoded(_decode_spec(decode))
        chosen, rule = self._policy(policy), spec.unmasking if rule is None else rule
        requests = as_requests(prompts)
        prompt_ids = [self._encoder.ids(request, chat) for request in requests]
        stops = StopStrings(spec.stop_strings, self.decode_text) if spec.stop_strings else None
        missing = list(range(len(requests)))
        while missing:
            sequences = [self._sequence(index, requests[index], prompt_ids[index], spec) for index in missing]
            writer = UnmaskingWriter(rule, stops, self.config.family)
            try:
                for event in self._decode(sequences, spec, chosen, batch_size, writer, observer):
                    if isinstance(event, SequenceState):
                        missing.remove(event.index)
                        yield Finished(event.index, self._generation(event, stops, batch_size))
                    else:
                        yield event
            except RuntimeError as error:
                batch_size = halved(min(batch_size, len(missing)), error)

    def score(
        self,
        requests: Sequence[ScoreRequest],
        estimator: EstimatorName = "chain",
        order: OrderName = "confidence",
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

    def encode(self, prompt: Prompt, chat: bool = False) -> list[int]:
        """The token ids of one prompt, as `generate` takes it."""
        (request,) = as_requests(prompt)
        return self._encoder.ids(request, chat)

    def workspace(self, slots: int, length: int, block_size: int) -> Workspace:
        """Allocate the buffers of a decoding."""
        return Workspace(self.transformer, slots, length, block_size)

    @torch.inference_mode()
    def _decode(
        self,
        sequences: list[SequenceState],
        spec: ResolvedSpec,
        policy: Policy,
        batch_size: int,
        writer: UnmaskingWriter,
        observer: Observer | None,
    ) -> Iterator[StepEvent | SequenceState]:
        length, size = room_for(sequences)
        slots = min(batch_size, len(sequences)) * sequences[0].settings.slots
        workspace = self.workspace(slots, length, size)
        workspace.observer = observer
        sampler = self._sampler(spec, writer.score)
        yield from Decoder(workspace, policy, writer, sampler).run(sequences)

    def _sampler(self, spec: ResolvedSpec, score: ScoreName) -> Sampler:
        family, ends = self.config.family, self.config.stop_tokens
        if spec.end_of_text is not None and not ends:
            raise UnmaskError(
                "end_of_text holds end tokens back, but the checkpoint names none; leave it out."
            )
        if spec.end_of_text == "last" and score != "confidence":
            raise UnmaskError(
                f"end_of_text last works on confidences, but the unmasking rule reads {score}; use never or another "
                "rule."
            )
        return Sampler(
            self.mask_token,
            spec.temperature,
            spec.top_p,
            score,
            spec.top_k,
            family.confidence,
            family.filters_greedy,
            never=ends[:1] if spec.end_of_text == "never" else (),
            last=ends if spec.end_of_text == "last" else (),
        )

    def _sequence(self, index: int, request: Request, ids: list[int], spec: ResolvedSpec) -> SequenceState:
        wanted = request.max_new_tokens if request.max_new_tokens is not None else spec.max_new_tokens
        if not isinstance(wanted, int) or wanted < 1:
            raise UnmaskError(f"max_new_tokens is {wanted}; it must be a whole number of at least 1.")
        if not isinstance(request.seed, int | None):
            raise UnmaskError(f"seed is {request.seed}; it must be a whole number.")
        stop_tokens = self.config.stop_tokens if spec.stop_tokens is None else spec.stop_tokens
        settings = BlockSettings(
            block_size=spec.block_size,
            sub_block_size=spec.sub_block_size,
            cache=spec.cache,
            mask_token=self.mask_token,
            stop_tokens=frozenset(stop_tokens),
            family=self.config.family,
            refresh_every=spec.refresh_every,
            guidance=spec.guidance,
        )
        seed = request_seed(spec.seed, ids, request.repeat) if request.seed is None else request.seed
        room = self.config.max_positions - len(ids)
        if self.config.family.canvas and wanted > room:
            raise UnmaskError(
                f"A prompt of {len(ids)} tokens and {wanted} new ones make a canvas of {len(ids) + wanted} positions, "
                f"but the model has {self.config.max_positions}; lower max_new_tokens or shorten the prompt."
            )
        reason = "length" if wanted <= room else "context"
        return SequenceState(index, ids, min(wanted, room), settings, self.config.num_layers, seed, reason)

    def _generation(self, sequence: SequenceState, stops: StopStrings | None, batch_size: int) -> Generation:
        ids, reason = sequence.answer, sequence.finish_reason or sequence.end_reason
        text = None
        if self.has_tokenizer:
            text = self.decode_text(ids[:-1] if reason == "stop" else ids)
            text = stops.text_before(text) if stops else text
        return Generation(ids, text, reason, sequence.ledger, batch_size, sequence.sharing)


def _decode_spec(decode: DecodeSpec | Mapping[str, Any] | None) -> DecodeSpec:
    return decode if isinstance(decode, DecodeSpec) else build(DecodeSpec, decode or {}, "Decode settings")

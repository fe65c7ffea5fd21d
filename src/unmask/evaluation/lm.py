"""lm-eval's view of the engine: text in, text or log likelihoods out, with any policy.

Nothing is decided here that changes a number: settings come from the task and the caller, prompts are
taken as lm-eval writes them, and one that does not fit the model's context is refused, never cut. The adapter
comes first, then the reading of its arguments as lm-eval's command line hands them over, then its bar.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from unmask.cost import Ledger, Sharing
from unmask.cost.work_sums import WorkSums
from unmask.engine.engine import DEFAULT_BATCH, Engine
from unmask.engine.events import Generation
from unmask.engine.score import Score, ScoreRequest
from unmask.errors import UnmaskError
from unmask.evaluation.answering import (
    GenerationRequest,
    PrefixGroup,
    Scorer,
    check_room,
    decode_settings,
    generate,
    numbered,
    prefix_groups,
)
from unmask.evaluation.clock import Meter, peak_memory, waiting_for
from unmask.evaluation.journal import Journal, key_of
from unmask.evaluation.lock import file_sha256, weights_sha256
from unmask.evaluation.proof import NOTHING, Proof, shared_work
from unmask.evaluation.rounds import Rounds, row_of
from unmask.loading import load
from unmask.model.chat_template import read_chat_template
from unmask.model.token_files import read_token_files, tokenizer_file
from unmask.policies.registry import policy_spec
from unmask.policies.text import read_policy, read_rule
from unmask.spec import AnyPolicySpec, DecodeSpec, build
from unmask.spec.decode import joined
from unmask.spec.family import EstimatorName
from unmask.spec.recipe import OrderName
from unmask.store.attempt import GeneratedAnswer, ScoredGroup

Pair = tuple[tuple[str, str], list[int], list[int]]
"""Context and continuation as text, and the ids of each."""


class UnmaskLM(TemplateLM):
    """A checkpoint with decode settings, a policy and an estimator."""

    sandbox: str | None = None
    """How model-written programs run under lm-eval's own command line, whose results keep what the model says."""

    def __init__(
        self,
        pretrained: str | Path | None = None,
        *,
        engine: Engine | None = None,
        policy: AnyPolicySpec | Mapping[str, Any] | str | None = None,
        decode: DecodeSpec | Mapping[str, Any] | None = None,
        estimator: EstimatorName = "chain",
        order: OrderName = "confidence",
        batch_size: int | str | None = DEFAULT_BATCH,
        max_batch_size: int | None = None,  # noqa: ARG002 (lm-eval's own command line passes it)
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        mask_token_id: int | None = None,
        meter: Meter | None = None,
        journal: Journal | None = None,
        rounds: Rounds | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.meter = meter or Meter()
        self.decode = _as_decode_spec(decode, settings)
        self.policy = _as_policy(policy)
        self.estimator: EstimatorName = estimator
        self.order: OrderName = order
        self.batch_size = _as_batch_size(batch_size)
        if engine is None:
            if pretrained is None:
                raise UnmaskError("No model is named; give pretrained=<checkpoint folder or hub id>.")
            with self.meter.phase("loading"):
                engine = load(pretrained, device, dtype, mask_token_id, revision)
        self.engine = engine
        self.proof = Proof(engine.config.num_layers, self.policy, estimator)
        self._device = engine.transformer.device
        self.meter.wait = waiting_for(self._device)
        self._chat = False
        self.journal = journal or Journal()
        self.rounds = rounds
        self.details: dict[tuple[str, int, int], tuple[int, str]] = {}
        """Accepted tokens and the finish reason of each generation, by task, sample and number of the draw."""
        self.stderrs: list[float] = []
        """Standard errors of the log likelihoods that were estimated."""

    # What lm-eval wants to know about the model.

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text. It also stands in front of texts that have no context."""
        if not self.engine.config.stop_tokens:
            raise UnmaskError(
                "The checkpoint names no end token, so a text without a context has nothing to go on from."
            )
        return self.engine.config.stop_tokens[0]

    @property
    def max_length(self) -> int:
        """Tokens of prompt and answer together."""
        return self.engine.config.max_positions

    @property
    def max_gen_toks(self) -> int:
        """Tokens of an answer where the task names no limit."""
        return self.decode.max_new_tokens

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer, which holds a hash of its content."""
        folder = self._folder()
        file = tokenizer_file(folder)
        return f"{folder.name}-{file_sha256(file)[:16]}" if file else folder.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Ids of a text. Special tokens are added unless the text is a chat, whose template writes its own."""
        special = not self._chat if add_special_tokens is None else add_special_tokens
        return self.engine.tokenizer.encode(string, special=special)

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A chat as text. Without a generation prompt the last message is the beginning of the answer.

        The line break at the end of such a beginning is left to the model: mbpp_instruct's extractor takes
        the first word after the fence for a language unless the answer starts with a line break.
        """
        self._chat = True
        messages = [dict(message) for message in chat_history]
        if not add_generation_prompt:
            messages[-1]["content"] = messages[-1]["content"].removesuffix("\n")
        return self.engine.tokenizer.render_chat(
            messages, add_generation_prompt, continue_final_message=not add_generation_prompt
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template's source, for lm-eval's records."""
        folder = self._folder()
        return read_chat_template(folder, read_token_files(folder).config) if chat_template else None

    def get_model_info(self) -> dict[str, Any]:
        """Everything that a result depends on, and what its forwards did."""
        folder, transformer = self.engine.folder, self.engine.transformer
        return {
            "checkpoint": None if folder is None else folder.name,
            "weights_sha256": None if folder is None else weights_sha256(folder),
            "shape": asdict(self.engine.config.shape),
            "family": self.engine.config.family.name,
            "device_type": transformer.device.type,
            "dtype": str(transformer.dtype).removeprefix("torch."),
            "layouts": transformer.layouts,
            "decode": msgspec.to_builtins(self.engine.config.decoded(self.decode)),
            "policy": None if self.policy is None else msgspec.to_builtins(self.policy),
            "estimator": self.estimator,
            "order": self.order,
            "engine_batch_size": self.batch_size,
            **({"sandbox": self.sandbox} if self.sandbox else {}),
            "effect": msgspec.to_builtins(self.proof.of()),
            "shared": msgspec.to_builtins(self.proof.shared()),
            "speed": {**self.meter.summary(), "peak_memory": msgspec.to_builtins(peak_memory(self.engine))},
        }

    # What lm-eval wants the model to do.

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Answers in the order of the requests."""
        keys = _generation_keys(requests)
        earlier = {place: answer for place, key in enumerate(keys) if (answer := self.journal.generated(key))}
        missing = [place for place in range(len(keys)) if place not in earlier]
        self.journal.computed_again += sum(key in self.journal.others for key in keys)
        with self.meter.phase("tokenising"):
            prompts = numbered([self._request(request) for request in requests])
        texts: list[str] = [""] * len(requests)
        bar = RequestBar(len(requests), "Generating", disable_tqdm or self.rank != 0)

        def keep(place: int, answer: GeneratedAnswer) -> None:
            request = requests[place]
            texts[place] = answer.text
            effect = WorkSums.from_row(answer.effect)
            self.proof.add(_task_name(request), "generation", effect, answer.shared or NOTHING)
            if self.rounds:
                self.rounds.count(row_of(request), effect, answer.tokens)
            self.details[_task_name(request), request.doc_id, request.idx] = (answer.tokens, answer.finish)
            self.journal.progress(len(requests) - waiting, len(requests))

        waiting = len(missing)
        for place, answer in earlier.items():
            self.journal.resumed += 1
            keep(place, answer)
            bar.advance(1)

        def answered(place: int, generation: Generation) -> None:
            nonlocal waiting
            waiting -= 1
            answer = GeneratedAnswer(
                key=keys[place],
                text=generation.text or "",
                tokens=len(generation.ids),
                finish=generation.finish_reason,
                effect=WorkSums.of(generation.ledger, self.engine.config.shape).as_row(),
                shared=shared_work(generation.sharing, self.engine.config.shape),
            )
            self.journal.write(answer)
            self.cache_hook.add_partial("generate_until", requests[place].args, answer.text)
            keep(place, answer)
            bar.advance(1, answer.tokens)

        rows = [[row_of(request)] for request in requests] if self.rounds else []
        for number, part in enumerate(self.rounds.parts(rows) if self.rounds else [missing], start=1):
            wanted = {place: prompts[place] for place in part if place not in earlier}
            generate(self.engine, wanted, self.policy, self.batch_size, self.meter, answered)
            if self.rounds:
                self.rounds.end(number, requests, dict(enumerate(texts)))
        bar.close()
        return texts

    def loglikelihood(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Log likelihood of each continuation, and whether the model would write it by itself."""
        with self.meter.phase("tokenising"):
            pairs = [(request.args, *self.encoded(*request.args)) for request in requests]
        return self._scored(pairs, [_task_name(request) for request in requests], disable_tqdm, requests)

    def _loglikelihood_tokens(
        self, requests: Sequence[Pair], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        return self._scored(requests, [""] * len(requests), disable_tqdm)

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log likelihood of whole texts. They are scored window by window, and every token counts once."""
        pairs: list[Pair] = []
        owners: list[int] = []
        for place, request in enumerate(requests):
            (text,) = request.args
            windows = get_rolling_token_windows(
                self.tok_encode(text, add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1,
                context_len=1,
            )
            for prefix, target in map(make_disjoint_window, windows):
                pairs.append((("", ""), prefix, target))
                owners.append(place)
        names = [_task_name(requests[owner]) for owner in owners]
        totals = [0.0] * len(requests)
        for owner, (logprob, _) in zip(owners, self._scored(pairs, names, disable_tqdm), strict=True):
            totals[owner] += logprob
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    # How that is done.

    def _request(self, request: Instance) -> GenerationRequest:
        ids, settings = self.prompt_ids(request), decode_settings(request.args[1], self.decode, self.engine)
        check_room(self.engine, len(ids), settings.max_new_tokens, _task_name(request))
        return GenerationRequest(ids, settings)

    def asked(self, arguments: Mapping[str, Any]) -> int | msgspec.UnsetType:
        """The length that a task asks of an answer, where the answer depends on it."""
        canvas = self.engine.config.family.canvas
        return (
            decode_settings(arguments, self.decode, self.engine).max_new_tokens if canvas else msgspec.UNSET
        )

    def prompt_ids(self, request: Instance) -> tuple[int, ...]:
        """Ids of the prompt of a request for a text; an empty one becomes the end token."""
        ids = self.tok_encode(request.args[0]) or [self.eot_token_id]
        if len(ids) >= self.max_length:
            raise UnmaskError(
                f"A prompt of {_task_name(request)} has {len(ids)} tokens but the model's context is "
                f"{self.max_length}; lower --num-fewshot or use a model with a longer context."
            )
        return tuple(ids)

    def encoded(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Ids of both. Spaces between them belong to the continuation; an empty context becomes the end token."""
        if context:
            prefix, target = self._encode_pair(context, continuation)
        else:
            prefix, target = [], self.tok_encode(continuation, add_special_tokens=False)
        return prefix or [self.prefix_token_id], target

    def _scored(
        self,
        pairs: Sequence[Pair],
        names: Sequence[str],
        disable_tqdm: bool,
        instances: Sequence[Instance] = (),
    ) -> list[tuple[float, bool]]:
        """Scores in the order of the pairs; in rounds where these are given and the requests of the pairs are known."""
        rounds = self.rounds if instances else None
        requests = [ScoreRequest(prefix, target) for _, prefix, target in pairs]
        keys = {tuple(group): _group_key(group, requests, names) for group in prefix_groups(requests)}
        answers: dict[int, tuple[float, bool]] = {}
        bar = RequestBar(len(pairs), "Scoring", disable_tqdm or self.rank != 0)

        def keep(group: PrefixGroup, answer: ScoredGroup) -> None:
            answers.update(zip(group, answer.scores, strict=True))
            self.stderrs += answer.stderrs or ()
            effect = WorkSums.from_row(answer.effect)
            self.proof.add(names[group[0]], "scoring", effect, answer.shared or NOTHING, answer.inactive)
            if rounds:
                rounds.count(row_of(instances[group[0]]), effect)
            self.journal.progress(len(answers), len(pairs))

        def scored(
            group: PrefixGroup, scores: list[Score], ledger: Ledger, sharing: Sharing, inactive: str | None
        ) -> None:
            shape = self.engine.config.shape
            answer = ScoredGroup(
                key=keys[tuple(group)],
                scores=[(score.logprob, score.is_greedy) for score in scores],
                inactive=inactive,
                effect=WorkSums.of(ledger, shape, len(group)).as_row(),
                shared=shared_work(sharing, shape),
                stderrs=[each.stderr for each in scores if each.stderr is not None] or msgspec.UNSET,
            )
            self.journal.write(answer)
            for place, score in zip(group, answer.scores, strict=True):
                if any(pairs[place][0]):
                    self.cache_hook.add_partial("loglikelihood", pairs[place][0], score)
            keep(group, answer)

        groups, missing = [list(group) for group in keys], set()
        for group, key in keys.items():
            self.journal.computed_again += len(group) * (key in self.journal.others)
            earlier = self.journal.scored(key)
            if earlier is not None:
                self.journal.resumed += len(group)
                keep(list(group), earlier)
                bar.advance(len(group))
            else:
                missing.add(group)
        scorer = self._scorer()
        rows = [{row_of(instances[place]) for place in group} for group in groups] if rounds else []
        for number, part in enumerate(rounds.parts(rows) if rounds else [range(len(groups))], start=1):
            todo = [groups[place] for place in part if tuple(groups[place]) in missing]
            scorer.run(requests, todo, scored, bar.advance)
            if rounds:
                rounds.end(number, instances, answers)
        bar.close()
        return [answers[place] for place in range(len(pairs))]

    def _scorer(self) -> Scorer:
        return Scorer(
            self.engine, self.decode, self.policy, self.estimator, self.order, self.batch_size, self.meter
        )

    def _folder(self) -> Path:
        if self.engine.folder is None:
            raise UnmaskError(
                "This engine was built from weights alone, so it has no tokenizer for a benchmark."
            )
        return self.engine.folder


def _task_name(request: Instance) -> str:
    return request.task_name or "unnamed"


def _generation_keys(requests: Sequence[Instance]) -> list[str]:
    """A key for each request; equal requests of a task are numbered, so that their keys differ."""
    seen: Counter[str] = Counter()
    keys = []
    for request in requests:
        key = key_of(_task_name(request), request.doc_id, request.idx, list(request.args))
        keys.append(key_of(key, seen[key]))
        seen[key] += 1
    return keys


def _group_key(group: PrefixGroup, requests: Sequence[ScoreRequest], names: Sequence[str]) -> str:
    targets = [list(requests[place].target) for place in group]
    return key_of(names[group[0]], list(requests[group[0]].prefix), targets)


def _as_decode_spec(decode: DecodeSpec | Mapping[str, Any] | None, settings: dict[str, Any]) -> DecodeSpec:
    """Decode settings as a spec or a table, with model arguments such as threshold=0.9 put over them."""
    if "max_gen_toks" in settings:
        settings["max_new_tokens"] = settings.pop("max_gen_toks")
    if isinstance(settings.get("rule"), str):
        settings["rule"] = msgspec.to_builtins(read_rule(settings["rule"]))
    given = msgspec.to_builtins(decode) if isinstance(decode, DecodeSpec) else decode or {}
    return build(DecodeSpec, joined(given, settings), "Model arguments")


def _as_policy(policy: AnyPolicySpec | Mapping[str, Any] | str | None) -> AnyPolicySpec | None:
    """A policy as a spec, a table, or text in any of the forms of the command line."""
    if isinstance(policy, str):
        return read_policy(policy)
    return None if policy is None else policy_spec(policy)


def _as_batch_size(batch_size: int | str | None) -> int:
    """Requests that decode together; lm-eval's `auto` takes the engine's default."""
    if batch_size is None or str(batch_size).startswith("auto"):
        return DEFAULT_BATCH
    try:
        size = int(batch_size)
    except ValueError:
        size = 0
    if size < 1:
        raise UnmaskError(f"batch_size is {batch_size}; it must be a whole number of at least 1, or auto.")
    return size


class RequestBar:
    """A bar on standard error. The longest requests come first, so the time left is rather too long than too short."""

    def __init__(self, total: int, what: str, disable: bool) -> None:
        self.start = time.perf_counter()
        self.tokens = 0
        self.bar = tqdm(total=total, desc=what, disable=disable, dynamic_ncols=True)

    def advance(self, requests: int, tokens: int = 0) -> None:
        """Show that so many more requests are done."""
        self.tokens += tokens
        if self.tokens and not self.bar.disable:
            speed = self.tokens / max(time.perf_counter() - self.start, 1e-9)
            self.bar.set_postfix_str(f"{speed:.1f} tokens/s", refresh=False)
        self.bar.update(requests)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self.bar.close()

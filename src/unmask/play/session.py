"""Decodes one prompt under several settings at once and tells everything as plain data, event by event.

The sides take turns: the one whose own clock is behind takes the next step, so that the work of both is shown as far
as equal time has brought it. One step is computed at a time in the whole process, whoever asks: decodings of two pages
wait for each other, and no clock runs meanwhile.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from unmask.engine.engine import Engine
from unmask.engine.events import Finished, StepEvent
from unmask.engine.prompt import Request
from unmask.errors import UnmaskError
from unmask.evaluation.recordings import step_as_data, text_of_one, texts_of
from unmask.model.checkpoint import Checkpoint, open_checkpoint
from unmask.model.hub import find_checkpoint, needs_download
from unmask.model.token_files import mask_token_of
from unmask.play.settings import SIDES, FieldsRefused, Question, Setting, checked

MOST_LOADED = 2
"""Engines that are kept: one for each side."""
MOST_AT_ONCE = 4
"""Decodings under way; each of them holds buffers."""
LONGEST_WAIT = 5.0
"""Seconds that an end waits for decodings that are under way."""
DIGITS = 6
"""Decimals of a second."""
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loading:
    """How checkpoints become engines; revision and mask token are those of the checkpoint called `model`."""

    model: str
    load: Callable[[Checkpoint, int | None], Engine]
    revision: str | None = None
    mask_token_id: int | None = None


class Session:
    """The engines of a server, and the decodings that are under way."""

    def __init__(self, loading: Loading) -> None:
        self.loading = loading
        self.under_way = 0
        self.closing = False
        self._idle = threading.Condition()
        self._turn = threading.Lock()
        self._loads = threading.Lock()
        self._opened: dict[str, tuple[Checkpoint, int | None]] = {}
        self._engines: OrderedDict[str, Engine] = OrderedDict()

    def check(self, question: Question, sides: list[Mapping[str, str]]) -> list[Setting]:
        """The settings of all sides, or what is wrong with them; loads no weights."""
        with self._turn:
            return checked(question, sides, self.opened)

    def opened(self, name: str) -> tuple[Checkpoint, int | None]:
        """A checkpoint and its mask token, by its name; the empty one is that of the command line."""
        ours = self.loading
        name = name or ours.model
        if name not in self._opened:
            mine = name == ours.model
            if not mine and needs_download(name):
                raise UnmaskError(
                    f"{name} is neither a folder nor on this machine yet; `unmask play --model {name}` fetches it."
                )
            checkpoint = open_checkpoint(find_checkpoint(name, ours.revision if mine else None))
            wanted = ours.mask_token_id if mine else None
            self._opened[name] = checkpoint, mask_token_of(checkpoint.config, checkpoint.folder, wanted)
        return self._opened[name]

    def race(self, question: Question, sides: list[Mapping[str, str]]) -> Iterator[Event]:
        """Decode under all settings at once; settings that cannot be honoured are refused before the first event."""
        settings = self.check(question, sides)
        if self.under_way >= MOST_AT_ONCE:
            raise FieldsRefused(
                {"prompt": f"{MOST_AT_ONCE} decodings are under way; stop one of them first."}
            )
        return self._race(settings)

    def _race(self, settings: list[Setting]) -> Iterator[Event]:
        self._count(1)
        lanes: list[_Lane] = []
        try:
            for side, setting in enumerate(settings):
                if (setting.model or self.loading.model) not in self._engines:
                    yield {"event": "loading", "model": setting.model or self.loading.model}
                lanes.append(_Lane(side, setting, self._engine(setting)))
            yield {"event": "ready", "sides": [lane.panel() for lane in lanes]}
            while (running := [lane for lane in lanes if not lane.done]) and not self.closing:
                lane = min(running, key=lambda lane: lane.seconds)
                with self._turn:
                    event = lane.advance()
                if event is not None:
                    yield event
            yield {"event": "end"}
        finally:
            for lane in lanes:
                lane.close()
            self._count(-1)

    def close(self) -> None:
        """Let decodings end at their next step, and wait for them as long as a step usually takes."""
        self.closing = True
        with self._idle:
            self._idle.wait_for(lambda: not self.under_way, LONGEST_WAIT)

    def _count(self, more: int) -> None:
        with self._idle:
            self.under_way += more
            self._idle.notify_all()

    def _engine(self, setting: Setting) -> Engine:
        """The engine of a side; one that was not used for the longest time makes room for it."""
        name = setting.model or self.loading.model
        with self._loads:
            if name not in self._engines:
                while len(self._engines) >= MOST_LOADED:
                    self._engines.popitem(last=False)
                checkpoint, mask_token = self._opened[name]
                engine = self.loading.load(checkpoint, mask_token)
                with self._turn:  # the first forward of a process is slow, and no side shall pay for it
                    engine.generate([setting.prompt], {"max_new_tokens": 1})
                self._engines[name] = engine
            self._engines.move_to_end(name)
            return self._engines[name]


@dataclass(slots=True)
class _Lane:
    """One side while it is decoded."""

    side: int
    setting: Setting
    engine: Engine
    seconds: float = 0.0
    """Time of its own steps alone."""
    done: bool = False
    stream: Iterator[StepEvent | Finished] = field(init=False)

    def __post_init__(self) -> None:
        setting = self.setting
        self.stream = self.engine.stream(
            [Request(setting.prompt)], setting.spec, setting.policy, batch_size=1
        )

    def panel(self) -> Event:
        """What is known before the first step, under the names that recordings use."""
        spec, start = self.setting.spec, len(self.setting.prompt)
        family = self.engine.config.family
        return {
            "configuration": SIDES[self.side],
            "settings": self.setting.words,
            "family": family.name,
            "prompt_tokens": start,
            "block_size": spec.block_size,
            "sub_block_size": spec.sub_block_size,
            "cache": spec.cache,
            "layers": self.engine.config.num_layers,
            "threshold": spec.threshold,
            "end": start + spec.max_new_tokens,
        }

    def advance(self) -> Event | None:
        """Take one step and tell it."""
        start = time.perf_counter()
        try:
            event = next(self.stream, None)
        except UnmaskError as error:
            self.done = True
            return {"event": "failed", "side": self.side, "sentence": str(error)}
        self.seconds += time.perf_counter() - start
        if event is None:
            self.done = True
            return None
        if isinstance(event, Finished):
            return self._answer(event)
        return self._step(event)

    def close(self) -> None:
        """Give the buffers back, wherever the decoding is."""
        closing = getattr(self.stream, "close", None)
        if closing is not None:
            closing()

    def _step(self, event: StepEvent) -> Event:
        work, layers = event.work, self.engine.config.num_layers
        assert work is not None
        times = 2 if self.setting.spec.guidance else 1
        done = [times * (work.attention_rows(layer) + work.mlp_rows(layer)) for layer in range(layers)]
        return {
            "event": "step",
            "side": self.side,
            "at": round(self.seconds, DIGITS),
            "done": done,
            "full": 2 * times * work.rows,
            "forwards": times,
            **step_as_data(event, lambda _, token: text_of_one(self.engine, token)),
        }

    def _answer(self, event: Finished) -> Event:
        answer = event.generation
        ledger = answer.ledger
        return {
            "event": "answer",
            "side": self.side,
            "at": round(self.seconds, DIGITS),
            "text": answer.text if answer.text is not None else " ".join(map(str, answer.ids)),
            "texts": texts_of(self.engine, answer.ids),
            "tokens": len(answer.ids),
            "finish": answer.finish_reason,
            "steps": ledger.steps(),
            "branch_rows": ledger.branch_rows(),
            "reuse_fraction": ledger.reuse_fraction(),
        }

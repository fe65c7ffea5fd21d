"""A conversation with one checkpoint: what it is given at each turn, under which settings, and what its answers cost.

Knows turns, settings and sums. It does not know a terminal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unmask.cost import Ledger
from unmask.engine.engine import Engine
from unmask.engine.events import Finished, Generation, StepEvent
from unmask.errors import UnmaskError
from unmask.play.settings import DECODE_FIELDS, value_of
from unmask.policies.registry import make_policy
from unmask.policies.text import read_policy
from unmask.spec import AnyPolicySpec, DecodeSpec, build
from unmask.spec.decode import joined

SETTINGS = ("policy", "max_new_tokens", *DECODE_FIELDS)
"""What may be changed between two turns."""
STANDING_ALONE = "Question: {}\nAnswer:"
"""How the embedded models want to be asked."""
USUAL = ("default", "none")
"""Words that give a setting back to the checkpoint; a cache can be called `none`."""


@dataclass
class Conversation:
    """Turns with one engine."""

    engine: Engine
    decode: dict[str, Any]
    """Decode settings that were chosen."""
    policy: AnyPolicySpec | None = None
    frame: str | None = None
    """What a question is put into that stands alone; None: turns follow each other."""
    turns: list[dict[str, str]] = field(default_factory=list)
    ledger: Ledger = field(init=False)
    """The work of all answers."""
    tokens: int = 0
    seconds: float = 0.0
    answers: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.engine.config.num_layers)

    @property
    def has_template(self) -> bool:
        """Whether turns go through a chat template."""
        return self.engine.has_tokenizer and self.engine.tokenizer.has_chat_template

    @property
    def manner(self) -> str:
        """How turns reach the model, as a sentence."""
        if self.frame is not None:
            return "It answers word problems in small numbers and nothing else, each question by itself."
        if self.has_template:
            return "Turns go through the checkpoint's chat template."
        return "This checkpoint has no chat template: it is given what you type as it stands, behind the turns before."

    def stream(self, text: str) -> Iterator[StepEvent | Finished]:
        """Decode the answer to a turn; it belongs to the conversation when `keep` is told so."""
        return self.engine.stream(
            [self.engine.encode(self.prompt(text))], self.spec, self.policy, batch_size=1
        )

    def prompt(self, text: str) -> str | Sequence[Mapping[str, str]]:
        """What the model is given for a turn."""
        if self.frame is not None:
            return text if text.startswith("Question:") else self.frame.format(text)
        turns = [*self.turns, {"role": "user", "content": text}]
        return turns if self.has_template else "\n".join(turn["content"] for turn in turns)

    @property
    def spec(self) -> DecodeSpec:
        """The decode settings of the next turn."""
        return build(DecodeSpec, self.decode, "Decode settings")

    def keep(self, text: str, answer: Generation, seconds: float) -> None:
        """Take a turn and its answer into the conversation."""
        if self.frame is None:
            said = {"role": "assistant", "content": answer.text or ""}
            self.turns += [{"role": "user", "content": text}, said]
        self.ledger = self.ledger.merged(answer.ledger)
        self.tokens += len(answer.ids)
        self.seconds += seconds
        self.answers += 1

    def change(self, name: str, text: str) -> None:
        """Change a setting for the turns to come; nothing changes where it cannot be honoured."""
        if name not in SETTINGS:
            raise UnmaskError(f"There is no setting {name}; there are {', '.join(SETTINGS)}.")
        if name == "policy":
            policy = None if text in USUAL else read_policy(text)
            make_policy(policy, self.engine.config.num_layers)
            self.policy = policy
            return
        if text == USUAL[0] or (text in USUAL and name != "cache"):
            decode = {known: value for known, value in self.decode.items() if known != name}
        else:
            decode = joined(self.decode, {name: value_of(name, text)})
        self.engine.config.decoded(build(DecodeSpec, decode, "Decode settings"))
        self.decode = decode

    def reset(self) -> None:
        """Forget the turns; settings and sums stay."""
        self.turns.clear()

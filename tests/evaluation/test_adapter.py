"""The adapter on a small random model: settings are honoured, order and batch do not matter, work is told."""

import math
from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UnmaskError

pytestmark = pytest.mark.usefixtures("lm_eval")

REUSE = {"kind": "layer_reuse", "k": 2, "layers": [0], "on": ["sub", "block"]}
LONG = {"do_sample": False, "max_gen_toks": 48}


@pytest.fixture(scope="module")
def model(text_model: Path) -> Any:
    from unmask.loading import load

    return load(text_model, "cpu", "float32")


def make(model: Any, **options: Any) -> Any:
    from unmask.evaluation.lm import UnmaskLM

    return UnmaskLM(engine=model, **options)


def requests() -> list[Any]:
    from text_model import asked

    texts = ["One", "A somewhat longer question about pears", "Two and", "Why is it so? " * 5, "One"]
    return [asked(text, **LONG) for text in texts]


@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
def test_answers_are_in_the_order_of_requests_whatever_the_batch(model: Any, batch_size: Any) -> None:
    expected = [
        generation.text
        for generation in model.generate([request.args[0] for request in requests()], {"max_new_tokens": 48})
    ]
    lm = make(model, batch_size=batch_size)
    assert lm.generate_until(requests()) == expected
    assert lm.generate_until(requests()[::-1]) == expected[::-1]


def test_until_cuts_the_text_and_ends_the_work(model: Any) -> None:
    from text_model import asked

    lm = make(model)
    (whole,) = lm.generate_until([asked("One", **LONG)])
    stop = whole[6:8]
    (cut,) = lm.generate_until([asked("One", until=[stop, "", "never there"], **LONG)])
    assert cut == whole[: whole.find(stop)]
    (same,) = lm.generate_until([asked("One", until=stop, **LONG)])
    assert same == cut


def test_a_special_token_in_until_stops_by_its_id(model: Any) -> None:
    from unmask.evaluation.answering import decode_settings
    from unmask.spec import DecodeSpec

    found = decode_settings({"until": ["<|im_end|>", "Q:"]}, DecodeSpec(), model)
    assert found.stop_tokens == (256, 258)
    assert found.stop_strings == ("Q:",)


@pytest.mark.parametrize("name", ["max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"])
def test_every_name_of_the_limit_is_known(model: Any, name: str) -> None:
    from text_model import asked

    lm = make(model)
    lm.generate_until([asked("One", **{name: 5})])
    assert lm.meter.decoding.tokens == 5


@pytest.mark.parametrize(
    "arguments, temperature",
    [
        ({}, 0.0),
        ({"do_sample": False, "temperature": 0.7}, 0.0),
        ({"do_sample": True, "temperature": 0.7}, 0.7),
        ({"temperature": 0.3}, 0.3),
        ({"do_sample": True}, 1.0),
    ],
)
def test_sampling_arguments(model: Any, arguments: dict[str, Any], temperature: float) -> None:
    from unmask.evaluation.answering import decode_settings
    from unmask.spec import DecodeSpec

    found = decode_settings({**arguments, "top_p": 0.5}, DecodeSpec(), model)
    assert (found.temperature, found.top_p) == (temperature, 0.5)


def test_repeats_of_a_drawn_answer_differ_and_come_again(model: Any) -> None:
    from text_model import asked

    drawn = [asked("One", do_sample=True, temperature=2.0, max_gen_toks=24)] * 3
    first = make(model).generate_until(drawn)
    assert len(set(first)) == 3
    assert make(model, batch_size=1).generate_until(drawn) == first


@pytest.mark.parametrize(
    "arguments, words", [({"top_k": 3}, "top_k"), ({"do_sample": True, "temperature": 0}, "temperature is 0")]
)
def test_what_cannot_be_honoured_is_refused(model: Any, arguments: dict[str, Any], words: str) -> None:
    from text_model import asked

    with pytest.raises(UnmaskError, match=words):
        make(model).generate_until([asked("One", **arguments)])


def test_a_prompt_beyond_the_context_is_refused_by_name(model: Any) -> None:
    from text_model import asked

    with pytest.raises(UnmaskError, match="A prompt of long_task has 5000 tokens"):
        make(model).generate_until([asked("x" * 5000, task="long_task")])


def test_a_chat_keeps_the_beginning_of_an_answer_open(model: Any) -> None:
    lm = make(model)
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "```python\n"}]
    text = lm.apply_chat_template(turns, add_generation_prompt=False)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n```python"
    assert lm.apply_chat_template(turns[:1]).endswith("<|im_start|>assistant\n")
    assert lm.tok_encode("<|im_start|>") == [257]
    assert "im_start" in lm.chat_template(True)
    assert lm.tokenizer_name == make(model).tokenizer_name


def endings() -> list[Any]:
    from text_model import choices

    return [
        *choices("Question: which?\nAnswer:", " A", " B", " pear"),
        *choices("Another one. Answer:", " A", " apple pie", " B"),
        *choices("", "no context"),
        *choices("Question: which?\nAnswer: ", "A"),
    ]


def test_scores_are_those_of_the_engine_in_the_order_of_requests(model: Any) -> None:
    from unmask.engine.score import ScoreRequest

    lm = make(model)
    found = lm.loglikelihood(endings())
    pairs = [lm.encoded(*request.args) for request in endings()]
    expected = model.score([ScoreRequest(*pair) for pair in pairs]).scores
    assert [answer[0] for answer in found] == pytest.approx([score.logprob for score in expected], abs=1e-4)
    assert [answer[1] for answer in found] == [score.is_greedy for score in expected]
    assert found[-1][0] == pytest.approx(found[0][0], abs=1e-4)  # a space at the end belongs to the ending


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_scores_do_not_depend_on_batch_or_order(model: Any, batch_size: int) -> None:
    lm = make(model, batch_size=batch_size, policy=REUSE)
    straight, reverse = lm.loglikelihood(endings()), lm.loglikelihood(endings()[::-1])[::-1]
    expected = make(model, policy=REUSE).loglikelihood(endings())
    for found in (straight, reverse):
        assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-4)


def test_choices_of_a_question_share_its_prefill(model: Any) -> None:
    from text_model import choices

    lm = make(model)
    lm.loglikelihood(choices("x" * 70, "A", "B", "C", "D", task="quiz"))
    together = lm.proof.of(["quiz"])["scoring"]
    assert together.requests == 4
    assert together.rows["prefill"] == 64
    assert lm.meter.scoring.requests == 4


def test_a_question_of_four_choices_costs_less_than_half_of_four_forwards(model: Any) -> None:
    from text_model import choices

    lm = make(model)
    questions = [f"{'Which of these is it, then? ' * 4}{number}\nAnswer:" for number in range(3)]
    for question in questions:
        lm.loglikelihood(choices(question, "A", "B", "C", "D"))
    alone = 4 * sum(-(-(len(question) + 1) // 32) * 32 for question in questions)
    assert lm.meter.scoring.rows <= 0.4 * alone


def test_rolling_scores_every_token_once(model: Any, text_model: Path) -> None:
    from lm_eval.api.instance import Instance

    from unmask.engine.score import ScoreRequest

    text = "Some text."
    lm = make(model)
    request = Instance("loglikelihood_rolling", {}, (text,), 0, metadata=("book", 0, 1))
    (found,) = lm.loglikelihood_rolling([request])
    ids = lm.tok_encode(text)
    (expected,) = model.score([ScoreRequest([256], ids)]).scores
    assert found == pytest.approx(expected.logprob, abs=1e-4)
    assert lm.meter.scoring.tokens == len(ids)


def test_an_estimator_that_does_not_fit_is_refused(model: Any) -> None:
    with pytest.raises(UnmaskError, match="canvas scores single tokens"):
        make(model, estimator="canvas").loglikelihood(endings())


def test_logits_that_are_not_finite_are_refused(text_model: Path) -> None:
    from text_model import asked, choices

    from unmask.loading import load

    broken = load(text_model, "cpu", "float32")
    broken.transformer.norm_D.fill_(math.nan)
    for call in (
        lambda: make(broken).generate_until([asked("One", **LONG)]),
        lambda: make(broken).loglikelihood(choices("One", "A", "B")),
    ):
        with pytest.raises(UnmaskError, match="finite"):
            call()


def test_every_answer_goes_to_the_cache_and_cached_ones_never_enter_a_speed(
    model: Any, tmp_path: Path
) -> None:
    from lm_eval.api.model import CachingLM

    lm = make(model)
    cached = CachingLM(lm, str(tmp_path / "answers.db"))
    first, scores = cached.generate_until(requests()), cached.loglikelihood(endings())
    done = (lm.meter.decoding.requests, lm.meter.scoring.requests)
    assert done == (5, 8)
    assert cached.generate_until(requests()) == first
    assert [tuple(score) for score in cached.loglikelihood(endings())] == scores
    assert (lm.meter.decoding.requests, lm.meter.scoring.requests) == done
    cached.dbdict.close()


def test_a_crash_leaves_finished_answers_in_the_cache(model: Any) -> None:
    kept: list[Any] = []

    class Hook:
        def add_partial(self, kind: str, arguments: Any, _: Any) -> None:
            kept.append((kind, arguments))
            if len(kept) == 2:
                raise RuntimeError("crash")

    lm = make(model, batch_size=1)
    lm.set_cache_hook(Hook())
    with pytest.raises(RuntimeError, match="crash"):
        lm.generate_until(requests())
    longest = sorted((request.args for request in requests()), key=lambda args: -len(args[0]))
    assert kept == [("generate_until", arguments) for arguments in longest[:2]]


def test_the_ledger_shows_what_a_policy_did(model: Any) -> None:
    lm = make(model, policy=REUSE)
    lm.generate_until(requests())
    effect = lm.proof.of()["generation"]
    assert effect.reuse_fraction > 0
    assert effect.inactive is None
    assert effect.layer_calls[0] < effect.layer_calls[1] == sum(effect.forwards.values())
    assert effect.layer_calls_replayed == effect.layer_calls[1] - effect.layer_calls[0]


def test_a_policy_that_did_nothing_says_why(model: Any) -> None:
    from text_model import choices

    never = make(model, policy={**REUSE, "k": 1})
    never.generate_until(requests())
    assert "k = 1 recomputes at every step" in never.proof.of()["generation"].inactive
    single = make(model, policy=REUSE)
    single.loglikelihood(choices("Question: which?\nAnswer:", "A", "B"))
    assert single.proof.of()["scoring"].inactive
    assert make(model).proof.of() == {}


def test_model_info_names_all_that_a_number_depends_on(model: Any, text_model: Path) -> None:
    import hashlib

    lm = make(model, policy=REUSE, threshold=0.7, estimator="onepass")
    lm.generate_until(requests()[:1])
    info = lm.get_model_info()
    weights = (text_model / "model.safetensors").read_bytes()
    assert info["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert info["decode"]["threshold"] == 0.7
    assert info["policy"]["kind"] == "layer_reuse"
    assert info["estimator"] == "onepass"
    assert info["speed"]["decoding"]["tokens"] == 48


@pytest.mark.parametrize("size", [0, "-1", "many"])
def test_batch_sizes_that_mean_nothing(model: Any, size: Any) -> None:
    with pytest.raises(UnmaskError, match="batch_size"):
        make(model, batch_size=size)


def test_no_model_is_named() -> None:
    from unmask.evaluation.lm import UnmaskLM

    with pytest.raises(UnmaskError, match="No model is named"):
        UnmaskLM()

"""Timing runs on a small model: every configuration by turns, equal answers or nothing, the control at 1."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from unmask.errors import UnmaskError

pytestmark = pytest.mark.usefixtures("lm_eval")

RECIPE = """
name = "timed"
hypothesis = "x"
model = {{ checkpoint = "embedded" }}
decode = {{ max_new_tokens = 12 }}
tasks = [{{ name = "{task}" }}]
[[grid]]
name = "k{{k}}"
policy = {{ kind = "layer_reuse", layers = [0], on = ["sub", "block"] }}
axes = {{ k = [1, 2, 3] }}
[[timing]]
task = "{task}"
prompts = 2
repeats = {repeats}
"""


def identity_of(task: str, repeats: int = 2) -> dict[str, Any]:
    from recipe_cases import lock_for
    from unmask.spec.recipe import parse_recipe
    from unmask.spec.sweep import sweep_of

    recipe = parse_recipe(RECIPE.format(task=task, repeats=repeats), "timed")
    (timing,) = [run for run in sweep_of(recipe, lock_for(recipe)) if run.kind == "timing"]
    return timing.identity


@pytest.fixture(scope="module")
def model(text_model: Path) -> Any:
    from unmask.loading import load

    return load(text_model, "cpu", "float32")


def time_all(
    model: Any, task: str, repeats: int = 2, progress: Callable[[int, int], None] | None = None
) -> Any:
    from unmask.evaluation import timing
    from unmask.evaluation.harness import Options
    from unmask.evaluation.task_data import load_tasks

    loaded = load_tasks([task], None, 2)
    identity = identity_of(task, repeats)
    return timing.time_all({"": model}, loaded, Options(limit=2), identity, progress or (lambda *_: None))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The k of every configuration in the order in which they ran; the work is really done."""
    from unmask.evaluation import timing

    seen: list[int] = []
    make = timing._runner

    def runner(path: str, lm: Any, requests: Any, settings: Any, task: Any) -> Any:
        once = make(path, lm, requests, settings, task)

        def counted(meter: Any) -> Any:
            seen.append(settings["policy"]["k"])
            return once(meter)

        return counted

    monkeypatch.setattr(timing, "_runner", runner)
    return seen


@pytest.mark.parametrize("task, path", [("unmask_arith", "generation"), ("unmask_choice", "scoring")])
def test_a_timing_run(model: Any, turns: list[int], task: str, path: str) -> None:
    told: list[tuple[int, int]] = []
    found = time_all(model, task, 3, lambda done, total: told.append((done, total)))
    assert turns == [1, 2, 3, 1, 2, 3, 3, 2, 1, 1, 2, 3]
    assert told == [(done, 12) for done in range(1, 13)]
    assert (found.path, found.control, found.repeats) == (path, "k1", 3)
    assert found.warm_up_seconds > 0
    assert set(found.configurations) == {"k1", "k2", "k3"}
    for one in found.configurations.values():
        assert len(one.seconds) == 3
        assert min(one.seconds) > 0
        assert one.requests == found.prompts
    control = found.configurations["k1"]
    speedup = control.speedup
    assert (speedup.median, speedup.low, speedup.high) == (1.0, 1.0, 1.0)
    assert control.effect.reuse_fraction == 0
    assert found.configurations["k2"].effect.reuse_fraction > 0
    assert found.peak_memory.of == "process"


def test_only_accepted_tokens_are_counted(model: Any) -> None:
    found = time_all(model, "unmask_arith")
    assert found.prompts == 2
    for one in found.configurations.values():
        assert one.tokens == 24
        assert one.tokens_per_second == pytest.approx(median(24 / spent for spent in one.seconds))
        assert one.tokens_per_forward == 24 / one.forwards


def test_equal_configurations_answer_alike_and_others_may_not(model: Any) -> None:
    found = time_all(model, "unmask_choice", 1).configurations
    again = time_all(model, "unmask_choice", 1).configurations
    digests = {name: one.answers_sha256 for name, one in found.items()}
    assert digests == {name: one.answers_sha256 for name, one in again.items()}
    assert digests["k1"] != digests["k2"]


def scripted(monkeypatch: pytest.MonkeyPatch, seconds: dict[int, list[float]], answers: Any = None) -> None:
    """Configurations whose rounds take what the test says, the warm-up a hundred seconds."""
    from unmask.cost.work_sums import WorkSums
    from unmask.evaluation import timing
    from unmask.store.result import SharedWork

    def runner(path: str, lm: Any, requests: Any, settings: Any, task: Any) -> Any:
        k = settings["policy"]["k"]
        rounds = iter([100.0, *seconds[k]])
        given = iter(answers[k] if answers else "aaaa")

        def once(meter: Any) -> Any:
            meter.decoding.requests, meter.decoding.tokens = 2, 60 if k == 3 else 30
            meter.decoding.decode_seconds = next(rounds)
            effect = WorkSums(2)
            effect.kinds["block"].forwards = 10
            return timing.Answered(next(given), effect, SharedWork())

        return once

    monkeypatch.setattr(timing, "_runner", runner)


def test_speed_ups_are_ratios_of_the_time_for_a_token_within_a_round(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, {1: [3.0, 6.0, 9.0], 2: [2.0, 4.0, 3.0], 3: [6.0, 6.0, 6.0]})
    found = time_all(model, "unmask_arith", 3).configurations
    assert found["k2"].speedup.median == 1.5
    ends = (found["k2"].speedup.low, found["k2"].speedup.high)
    assert ends == pytest.approx((1.5, 3.0))
    assert found["k3"].speedup.median == 2.0
    assert found["k2"].seconds == [2.0, 4.0, 3.0]
    assert found["k2"].tokens_per_second == 10.0
    assert (found["k2"].interval.low, found["k2"].interval.high) == (7.5, 15.0)


def test_a_prompt_without_text_is_timed_as_it_is_evaluated(model: Any) -> None:
    from text_model import asked

    from unmask.evaluation import timing
    from unmask.evaluation.clock import Meter
    from unmask.evaluation.lm import UnmaskLM

    lm = UnmaskLM(engine=model)
    requests = [asked("", max_gen_toks=5), asked("One", max_gen_toks=5)]
    settings = {"policy": {"kind": "full"}, "decode": {}, "generation": {}}
    meter = Meter()
    timing._runner("generation", lm, requests, settings, {})(meter)
    lm.generate_until(requests, disable_tqdm=True)
    assert (meter.decoding.requests, meter.decoding.tokens) == (2, lm.meter.decoding.tokens)
    with pytest.raises(UnmaskError, match="has 5000 tokens but the model's context"):
        timing._runner("generation", lm, [asked("x" * 5000)], settings, {})


def test_the_device_is_waited_for_in_warm_up_and_rounds(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from unmask.evaluation import clock, lm, timing

    waits: list[str] = []
    for module in (timing, lm):
        monkeypatch.setattr(module, "waiting_for", lambda device: lambda: waits.append(device.type))
    scripted(monkeypatch, {1: [1.0], 2: [1.0], 3: [1.0]})
    made: list[Any] = []
    real = timing._timed
    monkeypatch.setattr(
        timing,
        "_timed",
        lambda name, configuration, meter: made.append(meter) or real(name, configuration, meter),
    )
    time_all(model, "unmask_arith", 1)
    assert waits[:2] == ["cpu", "cpu"]
    for meter in [*made, lm.UnmaskLM(engine=model).meter]:
        assert isinstance(meter, clock.Meter)
        before = len(waits)
        meter.now()
        assert len(waits) == before + 1
    assert len(made) == 3


def test_answers_that_change_between_rounds_end_the_run(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    even = [1.0, 1.0]
    scripted(monkeypatch, {1: even, 2: even, 3: even}, {1: "aaa", 2: "aab", 3: "aaa"})
    with pytest.raises(UnmaskError, match="k2 gave other answers in a timed round than in its warm-up"):
        time_all(model, "unmask_arith")


def test_a_configuration_can_be_timed_on_an_engine_of_its_own(model: Any) -> None:
    import copy

    from unmask.evaluation import timing
    from unmask.evaluation.harness import Options
    from unmask.evaluation.task_data import load_tasks

    other = copy.copy(model)
    asked_of: list[str] = []

    def noted(name: str, engine: Any) -> Any:
        stream = engine.stream
        engine.stream = lambda *arguments, **named: asked_of.append(name) or stream(*arguments, **named)
        return engine

    engines = {"": noted("recipe", copy.copy(model)), "k2": noted("k2", other)}
    found = timing.time_all(
        engines,
        load_tasks(["unmask_arith"], None, 2),
        Options(limit=2),
        identity_of("unmask_arith", 1),
        lambda *_: None,
    )
    assert list(found.configurations) == ["k1", "k2", "k3"]
    assert asked_of == ["recipe", "k2", "recipe"] * 2, "the warm-up and one round"


def test_whole_texts_cannot_be_timed(model: Any) -> None:
    from unmask.evaluation.harness import Collector
    from unmask.evaluation.lm import UnmaskLM

    with pytest.raises(UnmaskError, match="cannot be timed yet"):
        Collector(UnmaskLM(engine=model)).loglikelihood_rolling([])

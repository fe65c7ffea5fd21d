"""The first cases: inputs on which version 0.1 hung, failed without a word, or took nonsense for sense."""

import copy
from collections.abc import Callable
from typing import Any

from values import Edit, as_json, as_toml
from world import POLICY, RECIPE, Case

PLAN = ("plan", "recipe")
GENERATE = ("generate", "2+2=", "--model", "model", "--max-new-tokens", "8")
INFO = ("info", "model")
CHAT = (*GENERATE, "--chat")
RUN = "results/runs/unmask_arith-full-7223516096480ceb"
CONFIG: dict[str, Any] = {
    "model_type": "Fast_dLLM_Qwen",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 258,
    "max_position_embeddings": 256,
    "bd_size": 32,
    "mask_token_id": 257,
    "eos_token_id": 256,
}


def recipe(change: Callable[[dict[str, Any]], Any], argv: tuple[str, ...] = PLAN) -> Case:
    """The good recipe with one change."""
    table = copy.deepcopy(RECIPE)
    change(table)
    return Case(argv, (Edit("recipe/recipe.toml", content=as_toml(table)),), ("recipe", "results"))


def text_of_recipe(content: bytes) -> Case:
    return Case(PLAN, (Edit("recipe/recipe.toml", content=content),), ("recipe", "results"))


def config(argv: tuple[str, ...] = GENERATE, **changes: Any) -> Case:
    return Case(argv, (Edit("model/config.json", content=as_json(CONFIG | changes)),), ("model",))


def special(path: str, how: str, argv: tuple[str, ...]) -> Case:
    return Case(argv, (Edit(path, how),))


def result(content: bytes, argv: tuple[str, ...] = ("check",)) -> Case:
    return Case(argv, (Edit(f"{RUN}/result.json", content=content),), ("recipe", "results"))


def own(statement: str) -> Case:
    text = POLICY.replace("return StepPlan()", statement)
    argv = (*GENERATE, "--policy", '{"kind": "custom", "target": "own_policy:Mine"}')
    return Case(argv, (Edit("own_policy.py", content=text.encode()),), ("model",))


def template(text: str) -> Case:
    return Case(CHAT, (Edit("model/chat_template.jinja", content=text.encode()),), ("model",))


HANGS = {
    "a grid of a million": recipe(
        lambda table: table["grid"][0]["axes"].update(k=list(range(1, 1001)), warmup=list(range(1, 1001)))
    ),
    "a wide name": recipe(lambda table: table["grid"][0].update(name="{k:>2000000000}")),
    "a pipe as config.json": special("model/config.json", "pipe", GENERATE),
    "a pipe as result.json": special(f"{RUN}/result.json", "pipe", ("check",)),
    "a pipe as recipe": special("recipe/recipe.toml", "pipe", PLAN),
    "a million layers": config(num_hidden_layers=10**6),
    "a million layers described": config(INFO, num_hidden_layers=10**6),
    "loops in a chat template": template("{% for i in range(90000) %}" * 2 + "{% endfor %}" * 2),
    "tokens for ever": Case(
        ("ceiling", "trim", "--model", "model", "--new-tokens", "9" * 30), (), ("model",)
    ),
}
DEFECTS = {
    "deep arrays in TOML": text_of_recipe(b"x = " + b"[" * 3000 + b"]" * 3000),
    "deep arrays in a JSON line": Case(
        ("generate", "--input", "small/prompts.jsonl", "--model", "model"),
        (Edit("small/prompts.jsonl", content=b"[" * 100_000 + b"\n"),),
    ),
    "a trace that never ends": recipe(
        lambda table: table["configurations"][6]["policy"].update(calibration="/dev/zero")
    ),
    "a word as epsilon": config(rms_norm_eps="x"),
    "a large block": config(bd_size=10**9),
    "a large block described": config(INFO, bd_size=10**9),
    "a word as value": result(b'{"kind": "accuracy", "value": "x"}'),
    "no value": result(b'{"kind": "accuracy", "value": null}'),
    "a large value": result(b'{"kind": "accuracy", "task": "unmask_arith", "value": 1e308}'),
    "no identity": result(b'{"kind": "accuracy", "task": "unmask_arith", "value": 0.5, "identity": null}'),
    "own code that leaves": own("import os; os._exit(77)"),
    "own code that raises SystemExit": own("raise SystemExit(0)"),
    "own code that fails": own("return 1 / 0"),
}
NONSENSE = {
    "a long name": recipe(lambda table: table.update(name="x" * 400)),
    "a longer name": recipe(lambda table: table["configurations"][0].update(name="x" * 5000)),
    "text as threshold": recipe(lambda table: table["configurations"][0]["decode"].update(threshold="0.9")),
    "text as period": recipe(lambda table: table["grid"][0]["axes"].update(k=["2"])),
    "a digit of another script": recipe(
        lambda table: table["configurations"][5]["policy"].update(layers=["\u0663"])
    ),
    "tokens without end": recipe(lambda table: table["decode"].update(max_new_tokens=10**30)),
    "a mask outside": recipe(lambda table: table["model"].update(mask_token_id=10**9)),
    "no such device": recipe(lambda table: table["evaluation"].update(device="tpu")),
    "a revision": recipe(lambda table: table["model"].update(revision="main")),
    "a long time": recipe(lambda table: table["resources"].update(minutes=10**12)),
    "a partition": recipe(lambda table: table["resources"].update(partition="gpu; rm -rf /")),
    "a partition of two lines": recipe(lambda table: table["resources"].update(partition="gpu\n#SBATCH")),
    "an option with a space": recipe(lambda table: table["resources"].update(sbatch={"a b": 1})),
    "an option of two lines": recipe(
        lambda table: table["resources"].update(sbatch={"comment": "a\n#SBATCH x"})
    ),
    "only the control": recipe(lambda table: table["success"].update(candidates=["k1_first_0.5"])),
    "a period twice": Case((*GENERATE, "--policy", "layer_reuse:k=2,k=3"), (), ("model",)),
    "a gap in ids": Case(("generate", "--ids", "1,2,,3", "--model", "model"), (), ("model",)),
    "a flag that is a word": config(tie_word_embeddings="maybe"),
    "no base": config(rope_theta=0),
    "no number": config(rms_norm_eps=float("nan")),
    "a file outside": Case(
        GENERATE,
        (
            Edit("model/model.safetensors", "missing"),
            Edit(
                "model/model.safetensors.index.json",
                content=as_json({"weight_map": {"x": "../outside/model"}}),
            ),
        ),
        ("model",),
    ),
}
REFUSED = [*HANGS.values(), *DEFECTS.values(), *NONSENSE.values()]
KNOWN = [
    *REFUSED,
    Case(
        ("logs", "7223516096480ceb"), (Edit(f"{RUN}/attempts/0001/log.txt", content=b"\x1b]0;title\x07\n"),)
    ),
    special(f"{RUN}/attempts/0001/progress", "pipe", ("status", "reference")),
    recipe(lambda table: table["resources"].update(parallel=0)),
    recipe(lambda table: table["evaluation"].update(data="../../../../etc")),
]

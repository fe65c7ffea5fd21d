"""Run by test_new_policy.py with a package that has a policy `nap`: meets it in every place, and names the places."""

import json
import sys
from pathlib import Path
from typing import Any

import test_policy_docs
from cli_cases import RECIPE
from click.testing import CliRunner
from planted import plant, write_recipe

import unmask
from unmask.cli import app
from unmask.cost import Ledger, ModelShape, Work
from unmask.cost.work_sums import WorkSums
from unmask.evaluation.proof import Proof
from unmask.model.synthetic import write_checkpoint
from unmask.policies.text import read_policy
from unmask.spec.policy import NapSpec  # type: ignore[attr-defined]
from unmask.store import Store

NAPS = """\
name = "naps"
hypothesis = "Naps are faster."
expected = "Nothing."

[model]
checkpoint = "embedded"

[[tasks]]
name = "unmask_arith"
limit = 4

[[configurations]]
name = "full"

[[grid]]
name = "nap{last}"
policy = { kind = "nap" }
[grid.axes]
last = [0, 1, 2]

[[configurations]]
name = "block_naps"
policy = { kind = "nap", last = 1, on = ["block", "sub"] }

[success]
task = "unmask_arith"
control = "full"
candidates = ["nap*", "block_naps"]
confirm = { speedup = 1.2, drop = 0.05 }
"""


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="unmask")
    assert result.exit_code in (0, 1), (arguments, result.output, result.exception)
    return result.stdout


def text() -> None:
    assert read_policy("nap:last=2,on=sub+block") == NapSpec(last=2)
    assert read_policy('{"kind": "nap", "on": ["block"]}') == NapSpec(on=("block",))


def docs(folder: Path) -> None:
    test_policy_docs.DOCS = (folder / "policies.md").read_text()
    test_policy_docs.test_every_registered_policy_has_its_heading_fields_and_defaults(NapSpec)
    test_policy_docs.test_every_section_has_an_example_of_its_kind(NapSpec)


def ceiling(model: Path) -> None:
    document = json.loads(run("ceiling", "nap:last=1", "nap:last=0", "full", "--model", model, "--json"))
    awake, dead, full = document["ceilings"]
    assert awake["dead"] is None
    assert awake["speedup"] > 1
    assert (dead["dead"], full["dead"]) == ("no layer naps", "it is the baseline")
    assert document["equal_by_construction"] == [["nap:last=0", "full"]]


def generate(model: Path) -> None:
    flags = ("--ids", "1,2,3", "--max-new-tokens", "40", "--model", model, "--json")
    document = json.loads(run("generate", *flags, "--policy", "nap:last=1"))
    assert document["policy"] == {"kind": "nap", "last": 1, "on": ["sub", "block"]}
    assert document["answers"][0]["ledger"]["reuse_fraction"] > 0


def score(model: Path) -> None:
    requests = [unmask.ScoreRequest([1, 2, 3], [4, 5, 6, 7])]
    scores = unmask.load(model).score(requests, policy={"kind": "nap"})
    assert scores.ledgers[0].reuse_fraction() > 0


def proof() -> None:
    ledger = Ledger(2)
    ledger.add(Work("sub", 8, 80, 8))
    shape = ModelShape(layers=2, hidden=8, ffn=16, heads=2, kv_heads=1, head_dim=4, vocabulary=32)
    of_a_dead_nap = Proof(2, NapSpec(last=0))
    of_a_dead_nap.add("task", "generation", WorkSums.of(ledger, shape))
    assert "no layer naps" in str(of_a_dead_nap.of()["generation"].inactive)


def recipe(folder: Path) -> Path:
    made = write_recipe(folder / "recipes" / "naps", NAPS)
    outlook: dict[str, Any] = json.loads(run("plan", made, "--json"))["outlook"]
    assert outlook["ceilings"]["nap0"]["dead"] == "no layer naps"
    assert outlook["ceilings"]["nap2"]["speedup"] > outlook["ceilings"]["nap1"]["speedup"] > 1
    assert sorted(map(sorted, outlook["equal"])) == [["block_naps", "nap1"], ["full", "nap0"]]
    return made


def check(made: Path) -> None:
    plant(Store.at(), made)
    table = run("run", made)
    assert "nap0 (baseline)" in table
    assert "nap1 (baseline)" not in table
    findings = json.loads(run("check", "naps", "--json"))["findings"]
    idle = {
        name for found in findings if found["guard"] == "nothing-skipped" for name in found["configurations"]
    }
    assert idle == {"nap1", "nap2", "block_naps"}, "of planted results, those whose policy claims to act"


def report() -> None:
    run("report", "naps")
    for name in ("report.html", "results.md"):
        (written,) = Store.at().root.rglob(name)
        assert "nobody can tell one nap from another" in written.read_text()
        assert "nap2" in written.read_text()


def main(folder: Path) -> None:
    model = write_checkpoint(RECIPE, folder / "model")
    text()
    print("text")
    docs(folder)
    print("docs")
    ceiling(model)
    print("ceiling")
    generate(model)
    print("generate")
    score(model)
    print("score")
    proof()
    print("proof")
    made = recipe(folder)
    print("recipe")
    check(made)
    print("check")
    report()
    print("report")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

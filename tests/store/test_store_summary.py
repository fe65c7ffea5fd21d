"""summary.json has the fields and the meanings of the older scripts' files."""

import json
from pathlib import Path
from typing import Any

import pytest
from store_cases import ENVIRONMENT, identity, result

from unmask.store import RunFolder, Store
from unmask.store.export import summary_of, summary_text
from unmask.store.result import AccuracyResult

FIELDS = [
    "task",
    "config",
    "timestamp",
    "accuracy",
    "throughput",
    "gpu_info",
    "git",
    "environment",
    "group_results",
]
SEED = Path(__file__).parents[3] / "shared" / "data" / "seed_summaries"


@pytest.fixture
def run(store: Store) -> RunFolder:
    return store.run(identity(limit=10))


def summed(run: RunFolder, **changes: Any) -> dict[str, Any]:
    return summary_of(result(run, **changes), "k2_middle", "00_baseline")


def test_the_layout_is_that_of_the_older_scripts(run: RunFolder) -> None:
    found = summed(run)
    assert list(found) == [*FIELDS, "model_args", "eval_params"]
    assert (found["task"], found["config"], found["timestamp"]) == ("gsm8k", "k2_middle", "20261118_020000")
    assert found["accuracy"] == 0.75
    assert found["throughput"] == {"tokens_generated": 1000, "total_time_s": 10.0, "tokens_per_s": 100.0}
    assert found["gpu_info"] == {
        "gpu_available": True,
        "gpu_name": "a GPU",
        "gpu_total_vram_gb": 23.5,
        "cuda_device": 0,
        "cuda_version": "12.8",
        "driver_version": "575.1",
    }
    assert found["git"] == {"commit": "c0ffee", "branch": None, "dirty": False}
    assert found["environment"]["slurm_job_id"] == "77"
    arguments = found["model_args"]
    assert (arguments["model_path"], arguments["reuse_k"], arguments["layer_subset"]) == (
        "a/model",
        2,
        "middle",
    )
    assert (arguments["use_block_cache"], arguments["experiment_name"]) == (True, "00_baseline")
    assert found["eval_params"] == {"num_fewshot": 0, "batch_size": "16", "limit": 10.0, "rows": 1319}


@pytest.mark.skipif(not SEED.is_dir(), reason="the older scripts' files are not here")
def test_real_files_have_no_field_that_is_missing_here(run: RunFolder) -> None:
    ours = summed(run)
    for file in SEED.rglob("summary.json"):
        theirs = json.loads(file.read_text())
        assert set(theirs) <= set(ours)
        for part in ("throughput", "gpu_info", "git", "environment", "model_args", "eval_params"):
            assert set(theirs[part]) <= set(ours[part]), (file, part)


def test_a_run_that_took_answers_over_or_only_scored_has_no_throughput(run: RunFolder) -> None:
    answers = {"sha256": "a", "count": 2, "tokens": 1000, "truncated": 0, "resumed": 1}
    assert summed(run, answers=answers)["throughput"] == {}
    assert summed(run, speed={"scoring": {"requests": 4, "seconds": 1.0}})["throughput"] == {}
    assert summed(run, speed={"decoding": {"tokens": 0, "prefill_seconds": 0.0}})["throughput"] == {}


def test_groups_name_their_metrics(run: RunFolder) -> None:
    subtask = {"metric": "acc,none", "value": 0.5, "stderr": 0.04, "rows": 135}
    changes = {
        "task": "mmlu",
        "metric": "acc,none",
        "metrics": {"acc,none": 0.75},
        "subtasks": {"mmlu_anatomy": subtask},
    }
    assert summed(run, **changes)["group_results"] == {
        "mmlu": {"acc,none": 0.75, "acc_stderr,none": 0.01, "alias": "mmlu"},
        "mmlu_anatomy": {"acc,none": 0.5, "acc_stderr,none": 0.04, "alias": " - anatomy"},
    }


def test_a_cpu_and_other_policies_have_their_own_words(run: RunFolder) -> None:
    found = summed(run, environment={**ENVIRONMENT, "device": "cpu"})
    assert found["gpu_info"] == {"gpu_available": False}
    for policy, k in (({"kind": "full"}, 1), ({"kind": "trim", "keep": 0.0}, None)):
        changed = result(run, identity={**run.identity, "policy": policy})
        told = summary_of(changed, "x", None)["model_args"]
        assert (told["reuse_k"], told["layer_subset"], told["policy"]) == (k, None, policy)


def test_a_result_with_little_in_it_still_has_a_summary() -> None:
    found = summary_of(AccuracyResult(task="gsm8k", value=0.5), "k1", None)
    assert (found["accuracy"], found["timestamp"], found["throughput"]) == (0.5, None, {})
    assert json.loads(summary_text(found)) == found

"""The three sentences on what an experiment shows: true whatever came out."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from sweeps import TASK, clean

from unmask.analysis.table import AnalysedExperiment, ConfigurationResult, Table
from unmask.analysis.verdict import verdict
from unmask.report.document import ExperimentPart
from unmask.report.gather import task_part
from unmask.report.lessons import lessons
from unmask.spec.recipe import Bounds, SuccessSpec
from unmask.store.result import KindWork


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """k2 saves 5.7 % of the work and k3 8.3 %; t0.8 saves 4.8 % and t0.7 10.7 %. k2_last loses 2.7 points."""
    return clean(0, 2000, tmp_path_factory.mktemp("rows"))


def criteria(gain: float, drop: float, *candidates: str, **fields: Any) -> SuccessSpec:
    return SuccessSpec(
        task=TASK,
        control="k1_first",
        candidates=candidates or ("k2_*", "k3_*"),
        confirm=Bounds(gain=gain, drop=drop),
        **{"by": "work", **fields},
    )


def part(table: Table, wanted: SuccessSpec | None) -> ExperimentPart:
    about = replace(table.experiments[0], success=wanted, control="k1_first")
    made = replace(table, experiments=(about,))
    (group,) = made.groups()
    return ExperimentPart(
        experiment=about,
        tasks=(task_part(made, group, "task"),),
        timings=made.timings,
        verdict=verdict(made, "sweep", findings=()) if wanted else None,
        findings=(),
    )


def without(table: Table, *names: str) -> Table:
    kept = tuple(one for one in table.entries if one.configuration not in names)
    return replace(table, entries=kept)


def with_flops(table: Table, name: str, share: float) -> Table:
    """The configuration needs this share of the control's work."""
    flops = next(one for one in table.entries if one.configuration == "k1_first").effect["generation"].flops

    def changed(one: ConfigurationResult) -> ConfigurationResult:
        effect = msgspec.structs.replace(one.effect["generation"], flops=round(share * flops))
        return replace(one, effect={"generation": effect}) if one.configuration == name else one

    return replace(table, entries=tuple(map(changed, table.entries)))


def test_a_confirmed_candidate_leads_with_its_figures(table: Table) -> None:
    best, out, threshold = lessons(part(table, criteria(1.05, 0.05)))
    assert best == (
        "k2_last takes 94 % of the counted work of k1_first (1.06x less), with a loss of 1.9 points (0.7 to 3.2) on "
        "2,000 rows."
    )
    assert out.startswith("Five of the six candidates cannot stay within 5 points (a loss of ")
    assert threshold == (
        "A lower threshold may do as well: t0.8 and t0.7, mixed to the same counted work, cannot be told apart from "
        "k2_last on these rows."
    )


def test_who_gains_too_little_is_named_with_the_reason(table: Table) -> None:
    best, out, _ = lessons(part(table, criteria(1.08, 0.05, "k2_last", "k2_middle")))
    assert best.startswith("k2_last comes nearest: it takes 94 % of the counted work")
    assert out == "None of the two candidates can reach 1.08x by counted work (1.06x)."
    _, out, _ = lessons(part(table, criteria(1.08, 0.05, "k2_last", "k3_first")))
    assert out.startswith(
        "k2_last cannot reach 1.08x by counted work (1.06x); k3_first cannot stay within 5 points"
    )


def test_steps_on_which_a_policy_acts_are_named_where_they_are_not_all(table: Table) -> None:
    def counted(one: ConfigurationResult) -> ConfigurationResult:
        skipped = 0 if one.configuration == "k1_first" else 50
        kinds = {
            "prefill": KindWork(branch_rows=100),
            "block": KindWork(branch_rows=600),
            "sub": KindWork(branch_rows=300 - skipped, branch_rows_skipped=skipped),
        }
        return replace(
            one, effect={"generation": msgspec.structs.replace(one.effect["generation"], by_kind=kinds)}
        )

    made = replace(table, entries=tuple(map(counted, table.entries)))
    _, out, _ = lessons(part(made, criteria(1.2, 0.5, "k2_last")))
    assert out == (
        "k2_last cannot reach 1.2x by counted work (1.06x): it acts on sub-block steps only, which hold 30 % of the "
        "layer work."
    )


def test_a_threshold_that_does_as_well_is_said_to(table: Table) -> None:
    cheap = with_flops(table, "t0.8", 0.5)
    *_, threshold = lessons(part(without(cheap, "t0.7"), criteria(1.05, 0.2, "k2_first")))
    assert threshold.startswith(
        "Plain decoding does at least as well on these rows with a lower threshold: t0.8 reaches 2.00x with a loss of"
    )


def test_beyond_all_thresholds_the_nearest_is_named(table: Table) -> None:
    cheap = with_flops(table, "k2_last", 0.5)
    *_, threshold = lessons(part(cheap, criteria(1.05, 0.05, "k2_last")))
    assert threshold.startswith(
        "A lower threshold does worse: t0.7 reaches 1.12x with a loss of 7.9 points ("
    )
    lossy = without(with_flops(table, "k2_first", 0.5), "t0.7")
    *_, threshold = lessons(part(lossy, criteria(1.05, 0.2, "k2_first")))
    assert threshold.startswith(
        "No threshold that was tried gains as much by counted work: t0.8 reaches 1.05x with"
    )
    *_, unknown = lessons(part(without(cheap, "t0.7", "t0.8"), criteria(1.05, 0.05, "k2_last")))
    assert unknown == "Whether a lower threshold alone would do as well as k2_last was not tried."


def test_the_control_under_another_name_is_no_lower_threshold(table: Table) -> None:
    lucky = with_flops(table, "k1_middle", 0.5)
    *_, threshold = lessons(part(lucky, criteria(1.05, 0.05, "k2_last")))
    assert "t0.8 and t0.7, mixed to the same counted work" in threshold


def test_a_lower_threshold_may_do_worse_between_those_tried(table: Table) -> None:
    *_, threshold = lessons(part(with_flops(table, "k2_last", 0.9), criteria(1.05, 0.05, "k2_last")))
    assert threshold.startswith(
        "A lower threshold does worse: t0.8 and t0.7, mixed to the same counted work, would"
    )
    assert "points more (" in threshold


def test_without_a_gain_there_is_nothing_to_match(table: Table) -> None:
    _, _, threshold = lessons(part(with_flops(table, "k2_last", 1.1), criteria(1.05, 0.05, "k2_last")))
    assert threshold == "k2_last gains nothing that a lower threshold would have to match."


def test_a_lower_threshold_may_do_better_between_those_tried(table: Table) -> None:
    *_, threshold = lessons(part(table, criteria(1.01, 0.3, "k2_middle")))
    assert threshold.startswith(
        "A lower threshold does better: t0.8 and t0.7, mixed to the same counted work, would lose"
    )
    assert "points less (" in threshold


def test_a_candidate_without_a_policy_is_what_policies_have_to_beat(table: Table) -> None:
    *_, threshold = lessons(part(table, criteria(1.01, 0.2, "t0.8")))
    assert threshold == "t0.8 is plain decoding: what every policy has to beat."


def test_speeds_and_tokens_have_words_of_their_own(table: Table) -> None:
    best, *_ = lessons(part(table, criteria(1.02, 0.05, "k2_last", by="speed")))
    assert best.startswith("k2_last is 1.06x as fast as k1_first, with a loss of")
    best, *_ = lessons(part(table, criteria(1.02, 0.05, "k2_last", by="tokens_a_forward")))
    assert " as many tokens a forward as k1_first, with a loss of" in best


def test_nothing_is_said_where_nothing_was_judged(table: Table) -> None:
    assert lessons(part(table, None)) == ()
    bare = without(table, *(one.configuration for one in table.entries if one.configuration != "k1_first"))
    assert lessons(part(replace(bare, timings=()), criteria(1.05, 0.05))) == ()
    foreign = AnalysedExperiment(name="sweep", success=criteria(1.05, 0.05), foreign=True)
    assert lessons(replace(part(table, criteria(1.05, 0.05)), experiment=foreign)) == ()


def test_what_must_be_equal_is_told_without_an_interval(table: Table) -> None:
    best, *_ = lessons(part(table, criteria(1.5, 0.05, "k1_last")))
    assert best.endswith("and must give the same answers.")
    assert "points (" not in best

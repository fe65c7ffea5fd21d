"""Results of one table that do not come from the same code, weights, data or machine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unmask.analysis.guards.finding import Finding, Severity, guard
from unmask.analysis.likeness import distinct
from unmask.analysis.table import (
    ConfigurationResult,
    ConfigurationTiming,
    Measured,
    StandIn,
    Table,
    TaskResults,
)
from unmask.analysis.words import counted, join_words

MUST_AGREE: tuple[tuple[str, Severity], ...] = (
    ("weights", "invalid"),
    ("data", "invalid"),
    ("task version", "invalid"),
    ("engine", "invalid"),
    ("lm_eval", "warning"),
    ("dtype", "invalid"),
    ("commit", "warning"),
    ("torch", "warning"),
    ("machine", "info"),
)
"""What two results must share, and how bad it is if they do not."""
OF_THE_TASK = ("data", "task version", "lm_eval")
"""What only results of one task share."""
OF_THE_CHECKPOINT = ("weights", "dtype")
"""What only results of one checkpoint share."""
SHORT = 12


@guard(
    severity="invalid",
    title="Results of one table come from different code, weights, data or machines",
    explanation=(
        "A difference between two results can only be laid to a policy when nothing else differs. Changes that were "
        "never committed cannot be looked up later."
    ),
    advice=(
        "Run the odd ones again from one clean commit with the same weights and data; `unmask run` does only what "
        "is missing."
    ),
)
def mixed_provenance(table: Table) -> list[Finding]:
    """Compare the provenance of everything in a group."""
    findings = []
    for group in table.groups():
        findings += _differences(group, group.entries, group.name) + _uncommitted(
            group, distinct(group.entries), group.name
        )
        findings += _hosts(group)
    for experiment in table.experiments:
        timings = table.timings_of(experiment.name)
        for timing in {timing.run: timing for timing in timings}.values():
            findings += _uncommitted(timing, [timing], f"timing on {timing.task}")
        for timing in {(timing.run, timing.model): timing for timing in timings}.values():
            beside = [each for each in timings if (each.run, each.model) == (timing.run, timing.model)]
            findings += _apart(table, timing, beside)
    return findings


@guard(
    severity="invalid",
    title="A twin answers otherwise than the run that stands for it",
    explanation=(
        "Of configurations that are equal by construction one is executed, and one of the others answers a few rows "
        "itself. Where these answers differ the configurations are not equal, or the machine does not repeat itself."
    ),
    advice="Run them all with `unmask run RECIPE --run-equal`, and compare their answers.",
)
def twins_differ(table: Table) -> list[Finding]:
    """Look at what the twins of runs have shown that stand for others."""
    findings = []
    for experiment in table.experiments:
        for stand_in in experiment.stand_ins:
            place = TaskResults(experiment, stand_in.task, stand_in.limit, ())
            named = _twin_finding(place.name, stand_in)
            if named is not None:
                finding = twins_differ.finding(*named, place)
                names = (stand_in.configuration, *stand_in.others)
                findings.append(replace(finding, configurations=names))
    return findings


def _twin_finding(place: str, stand_in: StandIn) -> tuple[Severity, str] | None:
    name, twin = stand_in.configuration, stand_in.twin
    if twin is None:
        sentence = f"the run of {name} stands for {join_words(stand_in.others)}, and no twin has shown yet that it may."
        return "info", f"{place}: {sentence}"
    if not twin.other:
        return None
    why = f" They were not computed alike ({twin.change})." if twin.change else ""
    others = join_words(stand_in.others)
    sentence = (
        f"{place}: {twin.configuration} must answer as {name} does, whose run stands for {others}, "
        f"but {twin.other} of {counted(twin.equal + twin.other, 'answer')} differ.{why}"
    )
    return "warning" if twin.change else "invalid", sentence


@guard(
    severity="info",
    title="A configuration has a checkpoint of its own",
    explanation=(
        "Two checkpoints differ in more than in how they are decoded, and tokens of two tokenizers are not of one "
        "length: tokens a second and tokens a forward compare what each counts as a token."
    ),
    advice="Compare seconds an answer and accuracy; lay no difference between checkpoints to a policy or a rule.",
)
def other_checkpoint(table: Table) -> list[Finding]:
    """Say which configurations of a table have another checkpoint than its control."""
    findings = []
    for group in table.groups():
        usual = group.control.model if group.control else None
        for model in dict.fromkeys(entry.model for entry in group.entries if entry.model != usual):
            concerned = [entry for entry in group.entries if entry.model == model]
            sentence = (
                f"{group.name}: {join_words(entry.configuration for entry in concerned)} "
                f"{'runs' if len(concerned) == 1 else 'run'} {model or 'the checkpoint of the recipe'}, the control "
                f"{usual or 'the checkpoint of the recipe'}."
            )
            findings.append(other_checkpoint.finding("info", sentence, group, concerned))
    return findings


def _apart(table: Table, timing: ConfigurationTiming, beside: Sequence[ConfigurationTiming]) -> list[Finding]:
    """A timing run beside the accuracy runs of its experiment: a verdict joins the two."""
    findings = []
    entries = [
        entry
        for entry in table.entries
        if entry.experiment == timing.experiment and entry.model == timing.model
    ]
    for key, severity in MUST_AGREE:
        if key == "machine" or timing.provenance.get(key) is None:
            continue
        mine = _text(timing.provenance[key])
        comparable = [entry for entry in entries if key not in OF_THE_TASK or entry.task == timing.task]
        theirs = [
            _text(entry.provenance[key]) for entry in comparable if entry.provenance.get(key) is not None
        ]
        others = [value for value in dict.fromkeys(theirs) if value != mine]
        if others:
            sentence = (
                f"timing on {timing.task}: its {key} is {mine[:SHORT]}, that of accuracy runs beside it "
                f"{join_words(value[:SHORT] for value in others)}: these speeds and accuracies do not belong together."
            )
            findings.append(mixed_provenance.finding(severity, sentence, timing, beside, spoils=("speed",)))
    return findings


def _differences(place: TaskResults, entries: Sequence[ConfigurationResult], name: str) -> list[Finding]:
    findings = []
    models = dict.fromkeys(entry.model for entry in entries)
    for key, severity in MUST_AGREE:
        beside = [[entry for entry in entries if entry.model == model] for model in models]
        for compared in beside if key in OF_THE_CHECKPOINT else [entries]:
            known = [entry for entry in compared if entry.provenance.get(key) is not None]
            values = [_text(entry.provenance[key]) for entry in known]
            several = list(dict.fromkeys(values))
            if len(several) > 1:
                usual = max(several, key=values.count)
                odd = [entry for entry, value in zip(known, values, strict=True) if value != usual]
                sentence = (
                    f"{name}: {len(several)} different values of {key} "
                    f"({join_words(value[:SHORT] for value in several)}) in one table; "
                    f"those that differ from the others are {join_words(entry.configuration for entry in odd)}."
                )
                findings.append(mixed_provenance.finding(severity, sentence, place, odd))
    return findings


def _uncommitted(
    place: TaskResults | ConfigurationTiming,
    results: Sequence[Measured],
    name: str,
) -> list[Finding]:
    dirty = [result for result in results if result.provenance.get("dirty")]
    if not dirty:
        return []
    diffs = {str(result.provenance.get("diff")) for result in dirty}
    unknown = "" if diffs != {"None"} else "; what had been changed is not on record"
    several = f", with {len(diffs)} different changes" if len(diffs) > 1 else ""
    sentence = (
        f"{name}: {len(dirty)} of {len(results)} results come from a tree with uncommitted changes"
        f"{several}{unknown}."
    )
    return [mixed_provenance.finding("warning", sentence, place, dirty)]


def _hosts(group: TaskResults) -> list[Finding]:
    """Machines matter where speeds of single runs are offered as results."""
    timed = [entry for entry in group.entries if entry.foreign and entry.run_tokens_per_second]
    hosts = {entry.provenance.get("host") for entry in timed} - {None}
    if len(hosts) < 2:
        return []
    sentence = f"{group.name}: the speeds of one table were taken on {len(hosts)} different hosts."
    advice = "Measure all configurations in one timing run on one machine."
    return [mixed_provenance.finding("warning", sentence, group, timed, advice)]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {value[key]}" for key in sorted(value))
    return str(value)

"""What results come to: findings, comparisons, reports, and tables for other programs.

Knows which results are asked for and where files go. What they say is found by analysis and shown by report.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.analysis.foreign import import_table
from unmask.analysis.guards import Finding, run_guards
from unmask.analysis.likeness import distinct
from unmask.analysis.losses import Comparisons
from unmask.analysis.samples import Comparison
from unmask.analysis.samples import compare as compare_entries
from unmask.analysis.stopping import sequential_of
from unmask.analysis.stored import own_table
from unmask.analysis.table import ConfigurationResult, entry_of
from unmask.analysis.verdict import Verdict
from unmask.errors import UnmaskError
from unmask.evaluation.catalogue import metric_of
from unmask.lab.names import NamedRun, ambiguous, find_run, runs_called
from unmask.lab.recipes import Message, Notify, read_criteria
from unmask.lab.runs import StorePlace, open_store, status
from unmask.report.document import Document
from unmask.report.gather import gather, task_parts
from unmask.report.lessons import lessons
from unmask.report.markdown import as_markdown
from unmask.report.page import as_page
from unmask.report.samples import flips_of, with_recordings
from unmask.report.stopped import brief_row
from unmask.report.tables import brief_table, levels_note
from unmask.spec.sweep import task_label
from unmask.store.experiments import experiment_names, experiment_of
from unmask.store.export import Labelled, to_csv, to_parquet, to_tree
from unmask.store.files import make_folder, write_atomically
from unmask.store.foreign import Imported, import_tree, imports
from unmask.store.index import listing
from unmask.store.result import AccuracyResult
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store

LONGEST_NAME = 80
"""Letters of the name of a report's folder."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What was checked and what the guards found."""

    experiments: tuple[str, ...]
    """Names of the experiments looked at."""
    imports: tuple[str, ...]
    """Names of the imports looked at."""
    results: int
    """Results looked at."""
    findings: tuple[Finding, ...]
    """What the guards found, the worst first."""

    @property
    def invalid(self) -> list[Finding]:
        """Findings that make a result invalid."""
        return [finding for finding in self.findings if finding.severity == "invalid"]


def check(
    *experiments: str,
    foreign: Iterable[str] = (),
    criteria: str | Path | None = None,
    store: StorePlace = None,
) -> Checked:
    """Look for what makes results invalid or doubtful: knobs without effect, controls that differ, mixed code.

    Without names all experiments and all imports are checked, imports apart from own results. `criteria` is a recipe
    whose [success] table imports are judged by.

        >>> [finding.sentence for finding in lab.check("05_mine").findings]       # doctest: +SKIP
    """
    place = open_store(store)
    success = read_criteria(criteria)
    own, others = list(experiments), list(foreign)
    if not own and not others:
        own, others = experiment_names(place), imports(place)
    if not own and not others:
        raise UnmaskError(
            f"There is nothing to check in {place.root}; run a recipe or import summaries first."
        )
    tables = [own_table(place, own)] if own else []
    tables += [import_table(place, name, success) for name in others]
    findings = [finding for table in tables for finding in run_guards(table)]
    results = sum(
        len(distinct(table.entries)) + len({timing.run for timing in table.timings}) for table in tables
    )
    return Checked(tuple(own), tuple(others), results, tuple(findings))


def results(experiment: str, *, store: StorePlace = None) -> list[dict[str, str]]:
    """The table that `run` ends with: a row for each accuracy run, with its figures as text and its state.

    >>> for row in lab.results("05_mine"):                    # doctest: +SKIP
    ...     print(row)
    """
    place = open_store(store)
    (standing,) = status(experiment, store=place)
    runs = [
        (run.member.task, run.member.limit, run.member.configuration, run.state.status)
        for run in standing.runs
        if run.member.kind == "accuracy"
    ]
    return result_rows(place, experiment, runs)


def result_rows(
    store: Store, experiment: str, runs: Iterable[tuple[str, int | None, str, str]]
) -> list[dict[str, str]]:
    """The brief columns of the report's table and the state of each run: a task, a limit, a configuration, a state.

    A run without a result, or with a retracted one, has a state only.
    """
    titles, lines = brief_table(task_parts(store, experiment))
    early = _stopped(store, experiment) if experiment in experiment_names(store) else {}
    titles = list(
        dict.fromkeys([*(titles or ["Configuration"]), *(title for row in early.values() for title in row)])
    )
    rows = []
    for task, limit, configuration, state in runs:
        known = lines.get((task, limit, configuration), [configuration])
        cells = {**dict.fromkeys(titles, ""), **dict(zip(titles, known, strict=False))}
        cells |= early.get((task, limit, configuration), {})
        rows.append({"Task": task_label(task, limit), **cells, "State": state})
    return rows


def _stopped(store: Store, experiment: str) -> dict[tuple[str, int | None, str], dict[str, str]]:
    """Cells of the runs that ended before their last row, by task, limit and configuration."""
    known = sequential_of(store, experiment_of(store, experiment))
    if known is None:
        return {}
    return {(known.task, known.limit, name): brief_row(known, name) for name in known.stopped}


def levels_of(store: Store, experiment: str) -> str:
    """At which level the intervals of an experiment's table hold, in a sentence; empty without intervals."""
    known = sequential_of(store, experiment_of(store, experiment))
    looks = (
        f"Drops of stopped runs: {Comparisons(known.terms.comparisons, sequential=known)}." if known else ""
    )
    return " ".join(filter(None, [levels_note(task_parts(store, experiment)), looks]))


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Two runs side by side."""

    comparison: Comparison
    """Difference, interval and p-value."""
    folders: tuple[str, str]
    """The names of their folders."""
    retractions: tuple[str, ...]
    """A sentence on each of the two runs that was retracted."""
    remarks: tuple[str, ...] = ()
    """A sentence on each configuration that another one's run stands for."""


def compare(first: str, second: str, *, store: StorePlace = None) -> ComparedRuns:
    """Compare two accuracy runs on the same rows: who is right where, and what the difference is.

    A run goes by its id or folder, the beginning of either, or its configuration, with experiment and task in front
    where several have that name. The difference is the second's minus the first's.

        >>> lab.compare("k1_first", "k2_middle").comparison.difference.interval   # doctest: +SKIP
        >>> lab.compare("05_mine/gsm8k/k1_first", "3f2a")                         # doctest: +SKIP
    """
    place = open_store(store)
    retractions: list[str] = []
    runs = _pair(place, first, second)
    remarks: list[str] = []
    before, after = (
        _entry(run, _called(place, name, run, remarks), retractions)
        for name, run in zip((first, second), runs, strict=True)
    )
    folders = runs[0].name, runs[1].name
    compared = compare_entries(before, after)
    return ComparedRuns(compared, folders, tuple(retractions), tuple(dict.fromkeys(remarks)))


def _called(store: Store, name: str, run: RunFolder, remarks: list[str]) -> str:
    """The configuration that a name means: the one that is asked for, whoever's run stands for it."""
    for named in runs_called(store, name):
        if named.member.folder == run.name:
            if named.member.instead:
                remarks.append(
                    f"{named.member.configuration} has no run of its own: that of {named.member.instead.configuration} "
                    "stands for it, since the two are equal by construction."
                )
            return named.member.configuration
    return run.worker.configuration or run.name


def _pair(store: Store, first: str, second: str) -> tuple[RunFolder, RunFolder]:
    """The two runs that are meant: of two names that several runs have, the pair on one task of one experiment."""
    named = runs_called(store, first), runs_called(store, second)
    if not all(named):
        return find_run(store, first), find_run(store, second)
    pairs = [(before, after) for before in named[0] for after in named[1] if _same_rows(before, after)]
    folders = {(before.member.folder, after.member.folder): (before, after) for before, after in pairs}
    if len(folders) > 1:
        done = {names: pair for names, pair in folders.items() if all(map(store.is_done, names))}
        folders = done or folders
    if len(folders) > 1:
        raise ambiguous(first, (before for before, _ in folders.values()))
    if not folders:
        return find_run(store, first), find_run(store, second)
    ((before, after),) = folders
    return RunFolder(store.runs_folder / before), RunFolder(store.runs_folder / after)


def _same_rows(one: NamedRun, two: NamedRun) -> bool:
    places = [(run.experiment, run.member.task, run.member.limit) for run in (one, two)]
    return places[0] == places[1]


def _entry(run: RunFolder, name: str, retractions: list[str]) -> ConfigurationResult:
    result = run.result()
    if result is None:
        raise UnmaskError(f"{run.name} has no result yet; `unmask status` says where it stands.")
    if not isinstance(result, AccuracyResult):
        raise UnmaskError(f"{run.name} is a timing run; compare two accuracy runs.")
    retraction = run.retraction()
    if retraction is not None:
        retractions.append(f"{run.name} was retracted: {retraction.reason}")
    return entry_of("", name, result, run.folder)


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """The files of a report and its verdicts."""

    markdown: Path
    """The path of results.md."""
    page: Path
    """The path of report.html."""
    verdicts: tuple[Verdict, ...]
    """Of the experiments that have criteria."""
    lessons: tuple[tuple[str, ...], ...]
    """What each of these experiments shows, in three sentences."""


def report(
    *experiments: str,
    foreign: Iterable[str] = (),
    criteria: str | Path | None = None,
    output: str | Path | None = None,
    recordings: int | None = None,
    store: StorePlace = None,
    on_event: Notify | None = None,
) -> WrittenReport:
    """Write results.md and report.html of some experiments and imports, without names of all experiments.

    `recordings` says how many samples the denoising viewer shows: 0 for none, None for two where the checkpoint is at
    hand and small. They are decoded in a process of its own, which alone loads torch.

        >>> lab.report("05_mine").page                        # doctest: +SKIP
        PosixPath('results/reports/05_mine/report.html')
    """
    place = open_store(store)
    names, others = list(dict.fromkeys(experiments)), list(dict.fromkeys(foreign))
    if not names and not others:
        names = experiment_names(place)
    document = gather(place, names, others, read_criteria(criteria))
    tasks = [task for part in document.parts for task in part.tasks]
    document = replace(document, flips=tuple(flips_of(tasks)))
    if recordings != 0:
        document = with_recordings(document, place, recordings, _as_text(on_event))
    folder = Path(output) if output else report_folder(place, names, others)
    markdown, page = write_report(document, folder)
    judged = [(part.verdict, lessons(part)) for part in document.parts if part.verdict is not None]
    return WrittenReport(
        markdown, page, tuple(verdict for verdict, _ in judged), tuple(said for _, said in judged)
    )


def _as_text(on_event: Notify | None) -> Callable[[str], None]:
    return lambda text: on_event(Message(text)) if on_event is not None else None


def report_folder(store: Store, experiments: Sequence[str], imports: Sequence[str]) -> Path:
    """Where the report of some experiments and imports lies."""
    name = "+".join([*experiments, *(f"foreign-{each}" for each in imports)])
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return store.root / "reports" / name


def write_report(document: Document, folder: Path) -> tuple[Path, Path]:
    """Write results.md and report.html; both are made before either is written."""
    pages = {"results.md": as_markdown(document), "report.html": as_page(document)}
    make_folder(folder)
    for name, text in pages.items():
        # A model may write half of a pair of surrogates; no file can hold that.
        write_atomically(folder / name, text.encode("utf-8", errors="replace"))
    return folder / "results.md", folder / "report.html"


@dataclass(frozen=True, slots=True)
class Exported:
    """A table or a tree of summaries that was written."""

    path: Path
    """Where it was written."""
    count: int
    """Rows of the table, or summaries of the tree."""
    is_tree: bool
    """Whether it is a folder of summary.json files."""


def export(*experiments: str, output: str | Path, store: StorePlace = None) -> Exported:
    """Write the results of experiments (all without a name) as .csv, .parquet, or a folder of summary.json files.

    Retracted results are marked in tables and left out of a folder. Files with other content are not replaced.

        >>> lab.export("05_mine", output="results.csv")       # doctest: +SKIP
        Exported(path=PosixPath('results.csv'), count=10, is_tree=False)
    """
    place, path = open_store(store), Path(output)
    labelled = _labelled(place, experiments or tuple(experiment_names(place)))
    if not labelled:
        raise UnmaskError(
            f"There is no result in {place.root} to export; `unmask status` shows what is there."
        )
    if path.suffix == ".csv":
        return Exported(path, to_csv(labelled, path), False)
    if path.suffix == ".parquet":
        return Exported(path, to_parquet(labelled, path), False)
    if path.suffix:
        raise UnmaskError(
            f"{path} has an ending that is not known; use .csv, .parquet or the name of a folder."
        )
    return Exported(path, len(to_tree(place, labelled, path)), True)


def _labelled(store: Store, names: Sequence[str]) -> list[Labelled]:
    results = listing(store)
    labelled = []
    for name in names:
        experiment = experiment_of(store, name)
        for member in experiment.members:
            if member.folder in results.damaged:
                raise UnmaskError(results.damaged[member.folder])
        labelled += [
            Labelled(
                record=results.records[member.folder],
                experiment=name,
                configuration=member.configuration,
                own=(member.instead.policy, member.instead.decode) if member.instead else None,
            )
            for member in experiment.members
            if member.folder in results.records
        ]
    return labelled


def import_summaries(folder: str | Path, name: str | None = None, *, store: StorePlace = None) -> Imported:
    """Read every <task>/<configuration>/summary.json below a folder as foreign results, kept apart from own runs.

    >>> lab.import_summaries("artifacts", "seed").added       # doctest: +SKIP
    """
    return import_tree(Path(folder), open_store(store), name or Path(folder).resolve().name, metric_of)

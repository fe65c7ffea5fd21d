"""The result of a run: the structs of result.json, with a sentence on every field (docs/result.md is made of them).

`RunFolder.publish` alone writes such a file and `RunFolder.result` alone reads it. Unknown fields are passed over and
missing ones take their defaults. Names inside an identity are hashed and never change.
"""

from typing import Annotated, Any, Literal

import msgspec

SCHEMA = 1
"""Of result.json."""
Number = int | float
"""A number of a JSON file, kept as it was written: as a mere `float`, 1 would come back as 1.0."""
AttemptNumber = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,9}\Z")]
"""Names a folder below `attempts`, and nothing outside of it."""
PathName = Literal["generation", "scoring"]
"""How a task asks the model: for answers, or for the log likelihoods of given ones."""


class KindWork(msgspec.Struct, frozen=True, kw_only=True):
    """Counted forwards of one kind."""

    forwards: int = 0
    """Forwards, summed over requests as if each of them ran alone."""
    rows: int = 0
    """Rows that were fed into these forwards, before anything was skipped."""
    branch_rows: int = 0
    """Rows computed in attention plus rows computed in the MLP, summed over layers."""
    branch_rows_skipped: int = 0
    """The same for rows that the policy left out."""


class CountedWork(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the forwards of some requests, as if each of them ran alone: what they shared is in `SharedWork`.

    Kinds of forwards are prefill, block, sub and commit.
    """

    requests: int = 0
    """Requests that the work was done for."""
    forwards: dict[str, int] = {}
    """Forwards by kind."""
    rows: dict[str, int] = {}
    """Rows fed by kind, before anything was skipped."""
    layer_calls: list[int] = []
    """For each layer, the number of forwards in which it was computed."""
    layer_calls_replayed: int = 0
    """Calls of layers, over all forwards, that were replayed instead of computed."""
    branch_rows: int = 0
    """Rows computed in attention plus rows computed in the MLP, summed over layers and kinds."""
    branch_rows_skipped: int = 0
    """The same for rows that the policy left out."""
    by_kind: dict[str, KindWork] = {}
    """All counts by kind."""
    flops: int = 0
    """Floating-point operations of these forwards without those that the policy left out."""
    flops_skipped: int = 0
    """Floating-point operations that the policy left out."""
    reuse_fraction: Number | None = None
    """`branch_rows_skipped` as a share of all branch rows."""

    def tokens_a_forward(self, tokens: int | None) -> float | None:
        """Accepted tokens over all forwards but prefills: 1 where a model predicts one token at a time."""
        forwards = sum(number for kind, number in self.forwards.items() if kind != "prefill")
        return tokens / forwards if tokens and forwards else None


class SharedWork(msgspec.Struct, frozen=True, kw_only=True):
    """What requests of one batch spared each other; the operations computed are `flops` of the work less these."""

    positions: int = 0
    """Prompt positions whose keys and values were taken over from another request instead of computed."""
    flops: int = 0
    """Floating-point operations that these positions take where a request runs alone."""
    forwards: int = 0
    """Forwards for which no weights were read, because a forward of another request had read them."""

    def plus(self, other: "SharedWork") -> "SharedWork":
        """Both together."""
        return SharedWork(
            positions=self.positions + other.positions,
            flops=self.flops + other.flops,
            forwards=self.forwards + other.forwards,
        )


class Effect(CountedWork, frozen=True, kw_only=True):
    """Counted work of an accuracy run on one path, and whether the policy acted."""

    inactive: str | None = None
    """Why the policy skipped nothing; null where it skipped something or is no reuse policy."""
    remark: str | None = None
    """Why configurations that look different must give equal figures, where that is so."""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of an accuracy run."""

    sha256: str | None = None
    """Digest of all answers in their order; equal digests mean equal answers."""
    count: int | None = None
    """Number of answers."""
    tokens: int | None = None
    """Accepted tokens of all generated answers."""
    truncated: int | None = None
    """Answers that ended by a limit of length or by the end of the context."""
    resumed: int | None = None
    """Answers taken over from an earlier attempt; with any of them the clocks of this run mean nothing."""
    computed_again: int | msgspec.UnsetType = msgspec.UNSET
    """Answers that an earlier attempt gave by another kind of computation; absent in results from before such were."""


class Subtask(msgspec.Struct, frozen=True, kw_only=True):
    """The result on one task of a group."""

    metric: str | None = None
    """Name and filter of the headline metric."""
    value: Number | None = None
    """Its value."""
    stderr: Number | None = None
    """Its standard error, where lm-eval gives one."""
    rows: int | None = None
    """Samples that were evaluated."""
    reuse_fraction: dict[str, Number] = {}
    """By path: the share of layer work that was skipped."""


class DecodingTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What an accuracy run decoded on its clock."""

    requests: int = 0
    """Requests that were decoded in this attempt."""
    tokens: int = 0
    """Accepted tokens."""
    forwards: int = 0
    """Forwards, summed over requests as if each of them ran alone."""
    prefill_seconds: Number = 0.0
    """Seconds in steps that fed prompts."""
    decode_seconds: Number = 0.0
    """Seconds in all other steps."""
    tokens_per_second: Number | None = None
    """Accepted tokens a second of both."""
    tokens_per_decode_second: Number | None = None
    """Accepted tokens a second of `decode_seconds`."""
    tokens_per_forward: Number | None = None
    """Accepted tokens over all forwards, prefills too; tables leave prefills out."""


class ScoringTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What an accuracy run scored on its clock."""

    requests: int = 0
    """Targets that were scored in this attempt."""
    tokens: int = 0
    """Tokens of these targets."""
    forwards: int = 0
    """Forwards, after requests with one prefix have shared theirs."""
    rows: int = 0
    """Rows fed into these forwards, before anything was skipped."""
    seconds: Number = 0.0
    """Seconds of scoring."""
    requests_per_second: Number | None = None
    """Targets a second."""
    tokens_per_second: Number | None = None
    """Target tokens a second."""


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The most memory that was in use."""

    bytes: int | None = None
    """Its size."""
    of: str | None = None
    """The device whose allocator was asked, or `process` for the memory of the whole process."""


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Clocks of an accuracy run. They have no warm-up and no repeats, so they are no measure of speed."""

    note: str = ""
    """Says just that to readers of the file."""
    seconds_outside_the_clock: dict[str, Number] = {}
    """By what they went for: `tasks`, `loading` (of the checkpoint), `tokenising` and `prompts_and_checking`."""
    decoding: DecodingTotals | None = None
    """Absent where nothing was decoded."""
    scoring: ScoringTotals | None = None
    """Absent where nothing was scored."""
    peak_memory: PeakMemory | None = None
    """The most memory in use during the run."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the settings of an accuracy run, as the worker had them."""

    checkpoint: str | None = None
    """Name of the checkpoint's folder."""
    weights_sha256: str | None = None
    """Digest of its weight files."""
    shape: dict[str, int] | None = None
    """Layers, widths, heads and vocabulary."""
    family: str | msgspec.UnsetType = msgspec.UNSET
    """The family of the model, which says how it decodes; absent in older results."""
    device_type: str | None = None
    """Kind of device, such as cpu or cuda."""
    dtype: str | None = None
    """Number format of weights and activations."""
    layouts: dict[str, str] = {}
    """Memory layout of each kind of weight matrix."""
    decode: dict[str, Any] = {}
    """Decode settings, before a task's own arguments."""
    policy: dict[str, Any] | None = None
    """The policy; null for the plain decoder."""
    estimator: str | None = None
    """How targets are scored."""
    order: str | None = None
    """In which order the chain estimator writes the tokens of a target."""
    engine_batch_size: int | None = None
    """Sequences that are decoded at once."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that the worker was allowed to use."""

    name: str | None = None
    """The product's name."""
    uuid: str | None = None
    """The vendor's identifier of this very device."""
    driver: str | None = None
    """Version of the driver."""
    memory_gb: Number | None = None
    """Its memory in units of 2**30 bytes."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Code, packages and machine of the worker."""

    commit: str | None = None
    """Commit of the checkout that the code belongs to; null for an installed package, `unknown` where git told none."""
    dirty: bool | None = None
    """Whether the code differed from that commit; null where nobody knows."""
    diff_sha256: str | None = None
    """Digest of the difference; null where there is none, `unknown` where git did not tell."""
    code_sha256: str | msgspec.UnsetType = msgspec.UNSET
    """Digest of the code itself; absent in results from before it was recorded."""
    packages: dict[str, str] = {}
    """Versions of the packages that can change a figure."""
    python: str | None = None
    """Version of Python."""
    system: str | None = None
    """Operating system and processor architecture."""
    cpu: str | None = None
    """Name of the processor."""
    cores: int | None = None
    """Cores that the worker was allowed to use."""
    memory_gb: Number | None = None
    """Main memory in units of 2**30 bytes."""
    gpus: list[Gpu] = []
    """GPUs that the worker was allowed to use, the first one first."""
    cuda: str | None = None
    """CUDA version that torch was built for."""
    host: str | None = None
    """Name of the machine."""
    argv: list[str] = []
    """Command line of the worker, without secrets."""
    slurm: dict[str, str | None] = {}
    """Ids of the SLURM job; all null elsewhere."""
    seed: int | None = None
    """Seed of the decode settings."""
    device: str | None = None
    """Device that the model was on."""
    dtype: str | None = None
    """Number format of weights and activations."""
    threads: int | None = None
    """Threads that torch used."""
    batch_size: int | None = None
    """Sequences that are decoded at once."""
    layouts: dict[str, str] = {}
    """Memory layout of each kind of weight matrix."""

    @property
    def gpu(self) -> str | None:
        """Name of the first GPU."""
        return self.gpus[0].name if self.gpus else None

    @property
    def machine(self) -> str | None:
        """Name of the first GPU, or of the processor where there is none."""
        return self.gpu if self.gpus else self.cpu


class MeasuredSpeedup(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the control divided by that of a configuration, round by round."""

    median: Number | None = None
    """Median over the rounds."""
    low: Number | None = None
    """Lower end of the median's interval, made of order statistics."""
    high: Number | None = None
    """Upper end of that interval."""
    coverage: Number | None = None
    """Probability with which such an interval covers the true median."""


class RateInterval(msgspec.Struct, frozen=True, kw_only=True):
    """The interval of a median speed."""

    low: Number | None = None
    """Lower end."""
    high: Number | None = None
    """Upper end."""
    coverage: Number | None = None
    """Probability with which such an interval covers the true median."""


class TimedConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a timing run."""

    tokens: int | None = None
    """Accepted tokens (or tokens of scored targets) in one round."""
    requests: int | None = None
    """Requests in one round."""
    forwards: int | None = None
    """Forwards in one round, summed over requests as if each of them ran alone."""
    seconds: list[Number] = []
    """Seconds of each round."""
    prefill_seconds: list[Number] = []
    """Of these, seconds in steps that fed prompts; zeros when scoring."""
    tokens_per_second: Number | None = None
    """Median over the rounds."""
    requests_per_second: Number | None = None
    """Median over the rounds."""
    interval: RateInterval | None = None
    """Interval of the speed: tokens a second when generating, requests a second when scoring."""
    speedup: MeasuredSpeedup | None = None
    """How many times faster than the control."""
    tokens_per_forward: Number | None = None
    """Accepted tokens over all forwards, prefills too; tables leave prefills out."""
    effect: CountedWork = CountedWork()
    """Counted work of one round."""
    shared: SharedWork | msgspec.UnsetType = msgspec.UNSET
    """What the requests of one round spared each other; absent in results from before this was counted."""
    answers_sha256: str | None = None
    """Digest of the answers, which are the same in every round."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What else went on while the clock of a timing run ran."""

    load_before: Number | None = None
    """Load average of the machine when the first round began."""
    load_after: Number | None = None
    """Load average when the last round had ended."""
    other_processes: int | None = None
    """Other processes that used more than 20 % of a core."""
    other_cpu_percent: Number | None = None
    """Processor time of all other processes, in per cent of one core."""
    clocks: dict[str, list[dict[str, str]]] = {}
    """`before` and `after`: clocks, temperature and load of each GPU."""
    throttled: bool | None = None
    """Whether a GPU gave a reason for throttling; null where none could be asked."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What the results of all kinds of runs have."""

    schema: int = SCHEMA
    """Version of the meaning of these fields."""
    id: str = ""
    """Id of the run: the hash of its identity."""
    identity: dict[str, Any] = {}
    """Everything the result depends on, as it was planned; its names are hashed and never change."""
    attempt: AttemptNumber | None = None
    """Number of the attempt that computed the result."""
    task: str
    """Task or group of tasks, as the recipe names it."""
    seconds: Number | None = None
    """Seconds from loading the tasks to the result; with those of loading where `loading_seconds` is absent."""
    loading_seconds: Number | msgspec.UnsetType = msgspec.UNSET
    """Seconds of loading checkpoints; next to none where the worker had them from an earlier run."""
    finished: str | None = None
    """When the result was computed, in UTC."""
    environment: Environment = Environment()
    """Code, packages and machine of the worker."""


class AccuracyResult(RunResult, frozen=True, kw_only=True, tag="accuracy"):
    """The result of one configuration on one task."""

    metric: str | None = None
    """Name and filter of the headline metric."""
    value: Number
    """Its value."""
    stderr: Number | None = None
    """Its standard error, where lm-eval gives one."""
    rows: int | None = None
    """Samples that were evaluated."""
    rows_of_the_set: int | None = None
    """Samples that the task has in all."""
    num_fewshot: list[int] = []
    """Examples in each prompt; several numbers where the tasks of a group differ."""
    metrics: dict[str, Any] = {}
    """All metrics that lm-eval returned, by name and filter."""
    subtasks: dict[str, Subtask] = {}
    """The tasks of a group by name."""
    effect: dict[str, Effect] = {}
    """By path (generation, scoring): counted work and whether the policy acted."""
    shared: dict[str, SharedWork] | msgspec.UnsetType = msgspec.UNSET
    """By path: what requests spared each other; absent in results from before this was counted."""
    likelihood_stderr: Number | msgspec.UnsetType = msgspec.UNSET
    """Mean standard error of the log likelihoods, where they are estimated from draws."""
    answers: Answers = Answers()
    """Digest and counts of the answers."""
    speed: Totals = Totals()
    """Clocks of this run; speeds come from timing runs only."""
    model: Model = Model()
    """Model and settings, as the worker had them."""
    sandbox_gaps: list[str] | None = None
    """What model-written programs were not kept from; only in results from before `sandbox`."""
    sandbox: Literal["bubblewrap", "unsafe"] | msgspec.UnsetType = msgspec.UNSET
    """How model-written programs ran: in bubblewrap, or as plain processes; absent where none were run."""


class TimingResult(RunResult, frozen=True, kw_only=True, tag="timing"):
    """The result of a timing run: all configurations by turns over the same prompts."""

    path: PathName = "generation"
    """Whether answers were generated or targets scored."""
    prompts: int | None = None
    """Requests that each round ran."""
    repeats: int | None = None
    """Timed rounds."""
    control: str
    """The configuration that the others are compared with."""
    warm_up_seconds: Number | None = None
    """Seconds of the first, untimed run of every configuration."""
    configurations: dict[str, TimedConfiguration] = {}
    """What was measured, by configuration."""
    conditions: Conditions = Conditions()
    """What else went on meanwhile."""
    peak_memory: PeakMemory | None = None
    """The most memory in use during the timed rounds."""


AnyResult = AccuracyResult | TimingResult
"""A result, told apart by its field `kind`: accuracy or timing."""

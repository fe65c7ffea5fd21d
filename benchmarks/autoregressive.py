"""Tokens per second of autoregressive models beside transformers, and beside what the machine could do at best.

The same random weights in fp32 for both: SmolLM2's 135 million parameters as a Llama, Qwen2.5's 0.5 billion as a
Qwen2. Transformers runs its greedy `generate` with a static cache, whose length is just that of prompt and answer.
Both decode the same prompt in turns in one process; the tokens of every round are compared before any figure is
given. Needs transformers, which Unmask itself does not: `pip install -e '.[bench]'` in an environment of its own.

    python benchmarks/autoregressive.py                 # about five minutes where nothing else runs
    python benchmarks/autoregressive.py --shapes smollm2-135m --new-tokens 128

`of limit` is the least time that the engine's own forwards could take (limits.py) over the time they took. Forwards
are counted beside the clock: one for the prompt and one for every further token, on both sides.

Key figures go to history.jsonl (see history.py). The last line is one JSON document; exit code 1 if tokens differ.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

import history
import unmask
from contenders import Decoding, Ids, Outcome, TokensDifferError, unmask_decoding
from decode import race
from limits import limit_of, recorded, this_machine
from random_checkpoint import AUTOREGRESSIVE, DEFAULT_CACHE, random_checkpoint
from timing import fair_clock, machine, ratios
from unmask.cost import Device

try:
    import transformers
except ImportError:
    transformers = None


def transformers_decoding(folder: Path) -> Decoding:
    """The library's own model and loop."""
    if transformers is None:
        raise SystemExit(
            "autoregressive.py compares with transformers, which is not here: pip install transformers."
        )
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    forwards = []
    model.register_forward_pre_hook(lambda *_: forwards.append(1))

    @torch.inference_mode()
    def run(prompts: Ids, spec: unmask.DecodeSpec) -> Outcome:
        forwards.clear()
        tokens_BT = torch.tensor(prompts)
        found_BT = model.generate(
            tokens_BT,
            attention_mask=torch.ones_like(tokens_BT),
            do_sample=False,
            max_new_tokens=spec.max_new_tokens,
            eos_token_id=None,
            pad_token_id=0,
            cache_implementation="static",
        )
        return Outcome(found_BT[:, tokens_BT.shape[1] :].tolist(), {"forwards": {"all": len(forwards)}})

    return run


def measure(shape: str, device: Device, options: argparse.Namespace) -> dict[str, Any]:
    """Count and time one shape; counting warms the engine up, two tokens transformers."""
    folder = random_checkpoint(shape, options.cache)
    engine = unmask.load(folder, device="cpu", dtype="float32")
    decodings = {"unmask": unmask_decoding(engine), "transformers": transformers_decoding(folder)}
    draw = torch.Generator().manual_seed(options.seed)
    prompts: Ids = torch.randint(0, engine.config.vocab_size, (1, options.prompt), generator=draw).tolist()
    spec = unmask.DecodeSpec(max_new_tokens=options.new_tokens, stop_tokens=())
    ids, forwards = recorded(engine, prompts, spec)
    decodings["transformers"](prompts, unmask.DecodeSpec(max_new_tokens=2))
    outcomes, samples = race(decodings, prompts, spec, options.repeats)
    assert outcomes["unmask"].ids == ids, "the forwards counted are those of the decoding timed"
    on, tokens = fair_clock(options.threads), len(ids[0])
    seconds = {name: median(getattr(sample, on) for sample in taken) for name, taken in samples.items()}
    limit = limit_of(forwards, engine.config.shape, device)
    return {
        "shape": shape,
        "parameters": engine.config.parameters,
        "prompt": options.prompt,
        "tokens": tokens,
        "clock": on,
        "forwards": {"unmask": len(forwards), **outcomes["transformers"].work["forwards"]},
        "tokens_per_second": {name: tokens / taken for name, taken in seconds.items()},
        "speedup": {name: asdict(ratio) for name, ratio in ratios(samples, "transformers", "unmask").items()},
        "limit": {**asdict(limit), "bound": limit.bound, "reached": limit.seconds / seconds["unmask"]},
    }


def line(found: dict[str, Any]) -> str:
    """One shape of the table."""
    ratio, speeds = found["speedup"][found["clock"]], found["tokens_per_second"]
    return (
        f"{found['shape']:12} {found['prompt']:6} {found['tokens']:6} {speeds['unmask']:9.2f} "
        f"{speeds['transformers']:12.2f} {ratio['median']:8.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] "
        f"{found['limit']['reached']:8.0%} {'+'.join(str(count) for count in found['forwards'].values()):>10}"
    )


def key_figures(found: dict[str, Any]) -> dict[str, Any]:
    """What the history keeps of a shape."""
    ratio = found["speedup"][found["clock"]]
    return {
        **{name: found[name] for name in ("shape", "prompt", "tokens")},
        "speedup": [round(ratio[name], 4) for name in ("median", "low", "high")],
        "of_limit": round(found["limit"]["reached"], 4),
        "tokens_per_second": [round(speed, 2) for speed in found["tokens_per_second"].values()],
    }


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=AUTOREGRESSIVE, default=list(AUTOREGRESSIVE))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7, help="rounds; at least 6 for an interval of 95 %%")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where checkpoints are kept")
    parser.add_argument("--no-history", action="store_true", help="leave history.jsonl as it is")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    torch.set_num_threads(options.threads)
    device = this_machine(options.threads)
    print(
        f"{options.threads} thread(s), {fair_clock(options.threads)} clock: "
        f"{device.bytes_per_second / 1e9:.1f} GB/s read from DRAM\n"
        f"{'shape':12} {'prompt':>6} {'tokens':>6} {'unmask':>9} {'transformers':>12} {'speed-up':>23} "
        f"{'of limit':>8} {'forwards':>10}",
        flush=True,
    )
    found, differs = [], None
    for shape in options.shapes:
        try:
            found.append(measure(shape, device, options))
            print(line(found[-1]), flush=True)
        except TokensDifferError as difference:
            differs = f"{shape}: {difference}"
            print(differs, flush=True)
    settings = {name: getattr(options, name) for name in ("threads", "repeats", "new_tokens", "seed")}
    report: dict[str, Any] = {"benchmark": "autoregressive", "dtype": "float32", **settings}
    if found and not options.no_history:
        history.append({**report, "cases": [key_figures(one) for one in found]})
    print(json.dumps(report | {"cases": found, "differs": differs, "device": asdict(device)} | machine()))
    return 1 if differs else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The limit of a decoding: what is counted, what it costs, and that nothing the engine did is left out."""

import pytest
import torch

import limits
import unmask
from limits import Forward, Limit, limit_of, recorded, this_machine
from random_checkpoint import random_checkpoint
from unmask.cost import Device, ModelShape, Price, Work, price_of, total_price
from unmask.model.geometry import Segment

SHAPE = ModelShape(layers=2, hidden=8, ffn=16, heads=4, kv_heads=2, head_dim=2, vocabulary=10)
ATTENTION, MLP, HEAD, KV = 8 * 2 * 12, 3 * 8 * 16, 8 * 10, 2 * 2 * 2


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> unmask.Engine:
    folder = random_checkpoint("tiny", tmp_path_factory.mktemp("cache"))
    return unmask.load(folder, device="cpu", dtype="float32")


def prompts(engine: unmask.Engine, batch: int, length: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, engine.mask_token, (batch, length), generator=draw).tolist()


def test_a_forward_of_one_request_is_priced_like_the_ledgers_work() -> None:
    forward = Forward.of([Segment(0, range(32, 36), 64)])
    forward.reads = 3
    assert forward == Forward(rows=4, pairs=4 * 64, keys=64, reads=3)
    assert forward.price(SHAPE, 4) == price_of(Work("sub", 4, 4 * 64, 3), SHAPE, 4)


def test_a_shared_forward_reads_weights_once_and_every_requests_keys() -> None:
    forward = Forward.of([Segment(0, range(32, 36), 64), Segment(1, range(4), 32)])
    forward.reads = 5
    flops = 2 * 5 * HEAD + 2 * (2 * 8 * (ATTENTION + MLP) + 4 * (4 * 64 + 4 * 32) * 4 * 2)
    elements = HEAD + 2 * (ATTENTION + MLP + (64 + 32 + 8) * KV)
    assert forward.price(SHAPE, 4) == Price(flops, 4 * elements)


def test_blocks_of_one_prompt_read_its_keys_once() -> None:
    assert Forward.of([Segment(0, range(32), 32), Segment(0, range(32, 64), 64)]) == Forward(
        rows=64, pairs=32 * 32 + 32 * 64, keys=64
    )


def test_the_limit_is_the_larger_bound_of_every_forward() -> None:
    forward = Forward(rows=4, pairs=4 * 64, keys=64, reads=3)
    price = forward.price(SHAPE, 4)
    slow_memory = Device("memory", flops_per_second=1e15, bytes_per_second=100.0, element_bytes=4)
    slow_compute = Device("compute", flops_per_second=50.0, bytes_per_second=1e15, element_bytes=4)

    by_memory = limit_of([forward, forward], SHAPE, slow_memory)
    assert by_memory == Limit(pytest.approx(2 * price.bytes / 100), pytest.approx(2 * price.bytes / 100))
    assert by_memory.bound == "memory"
    by_compute = limit_of([forward], SHAPE, slow_compute)
    assert by_compute == Limit(pytest.approx(price.flops / 50), 0.0)
    assert by_compute.bound == "compute"


@pytest.mark.parametrize(("batch", "length"), [(1, 64), (1, 70), (4, 96)])
def test_recorded_forwards_hold_the_work_of_all_ledgers(
    engine: unmask.Engine, batch: int, length: int
) -> None:
    spec = unmask.DecodeSpec(max_new_tokens=33, cache="dual" if batch == 1 else "none", stop_tokens=())
    asked = prompts(engine, batch, length)
    answers = engine.generate(asked, spec, batch_size=batch)
    ids, forwards = recorded(engine, asked, spec)

    assert ids == [answer.ids for answer in answers]
    shape = engine.config.shape
    alone = [total_price(answer.ledger, shape, 4) for answer in answers]
    together = [forward.price(shape, 4) for forward in forwards]
    assert sum(price.flops for price in together) == sum(price.flops for price in alone)
    assert sum(forward.reads for forward in forwards) == sum(
        work.reads * count for answer in answers for work, count in answer.ledger.entries.items()
    )
    steps = sum(sum(answer.ledger.steps().values()) for answer in answers)
    assert len(forwards) == steps if batch == 1 else len(forwards) < steps


def test_rates_of_this_machine_are_positive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUFFER_BYTES", 1 << 22)
    monkeypatch.setattr(limits, "PRODUCT_SIZES", (64,))
    torch.set_num_threads(1)
    device = this_machine(1)
    assert device.bytes_per_second > 0
    assert device.flops_per_second > 0
    assert device.element_bytes == 4

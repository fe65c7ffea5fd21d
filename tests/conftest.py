"""Settings of every test: one thread, so that timings and rounding do not depend on the machine's cores,
and hypothesis without randomness or deadlines, so that a failure is there again tomorrow."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, print_blob=True, database=None, max_examples=12
)
settings.load_profile("repeatable")

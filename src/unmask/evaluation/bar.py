"""A progress bar for benchmarks: requests done, time left, and tokens a second."""

import time

from tqdm import tqdm


class Bar:
    """One bar on standard error; the longest requests come first, so the time left is an upper guess."""

    def __init__(self, total: int, what: str, disable: bool) -> None:
        self.start = time.perf_counter()
        self.tokens = 0
        self.bar = tqdm(total=total, desc=what, disable=disable, dynamic_ncols=True)

    def advance(self, requests: int, tokens: int = 0) -> None:
        """Some more requests are done."""
        self.tokens += tokens
        if self.tokens and not self.bar.disable:
            speed = self.tokens / max(time.perf_counter() - self.start, 1e-9)
            self.bar.set_postfix_str(f"{speed:.1f} tokens/s", refresh=False)
        self.bar.update(requests)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self.bar.close()

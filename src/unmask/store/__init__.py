"""The store: one folder a run, results published once, statuses computed. Knows files, not models or schedulers."""

from unmask.store.attempt import Attempt, Sample
from unmask.store.files import canonical, publish_once, read_json, write_atomically
from unmask.store.result import AccuracyResult, AnyResult, TimingResult
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store, run_id

__all__ = [
    "AccuracyResult",
    "AnyResult",
    "Attempt",
    "RunFolder",
    "Sample",
    "Store",
    "TimingResult",
    "canonical",
    "publish_once",
    "read_json",
    "run_id",
    "write_atomically",
]

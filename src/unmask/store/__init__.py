"""The store: one folder a run, results published once, statuses computed. Knows files, not models or schedulers."""

from unmask.store.attempt import Attempt
from unmask.store.files import canonical, publish_once, read_json, read_lines, write_atomically
from unmask.store.run_folder import RunFolder
from unmask.store.store import Store, run_id

__all__ = [
    "Attempt",
    "RunFolder",
    "Store",
    "canonical",
    "publish_once",
    "read_json",
    "read_lines",
    "run_id",
    "write_atomically",
]

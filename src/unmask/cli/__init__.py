"""The command line: few verbs, one file each, each a thin call into the library.

    unmask generate    answer prompts with a checkpoint
    unmask info        what a checkpoint is and what it needs
    unmask conformance compare this machine with recorded decodings
    unmask eval        benchmarks through lm-eval
    unmask prepare     fetch checkpoint and data once, and lock their hashes
    unmask doctor      what works here and what to install
    unmask ceiling     the most that policies can save
    unmask probe       record how layers move between steps

Nothing here imports torch until a verb needs it, so that `--help` answers at once.
"""

from unmask.cli.group import app, main

__all__ = ["app", "main"]

"""The command line: verbs that parse, call the library and print.

    unmask generate    answer prompts with a checkpoint
    unmask info        what a checkpoint is and what it needs
    unmask conformance compare this machine with recorded decodings
    unmask eval        benchmarks through lm-eval
    unmask prepare     fetch checkpoint and data once, and lock their hashes
    unmask doctor      what works here and what to install
    unmask gpu-check   the first hour on a GPU: is it right, and how fast
    unmask ceiling     the most that policies can save
    unmask predict     speeds that a named card should reach
    unmask probe       record how layers move between steps

    unmask new         begin an experiment
    unmask plan        what a recipe would run, and what it can show
    unmask run         execute what a recipe still lacks; run-one is what its workers start as
    unmask status      where runs stand; logs, cancel, retract and rm look after them
    unmask check       what makes results invalid; compare sets two runs side by side
    unmask report      results as Markdown and pages
    unmask export      results for other programs; import reads those of older ones

Nothing here imports torch until a verb needs it, so that `--help` answers at once.
"""

from unmask.cli.group import app, main

__all__ = ["app", "main"]

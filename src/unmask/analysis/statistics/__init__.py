"""Statistics of accuracies: plain functions of numbers. Knows nothing of runs, stores or policies.

- `intervals`: Wilson's for a proportion, Student's for a mean
- `paired`, `tango`, `bootstrap`: two configurations on the same samples
- `unpaired`: on different samples
- `groups`: subtasks as lm-eval weighs them, clustered errors
- `correction`: many comparisons
- `power`: samples needed
"""

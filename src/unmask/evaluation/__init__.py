"""Benchmarks through lm-eval: tasks, data, scoring, clocks, and a sandbox for model-written programs."""

"""What results mean: statistics, guards, a verdict and the frontier. Needs no torch.

- `tables`: results of experiments and imports out of a store, as `records`
- `guards`: what makes them invalid or doubtful
- `verdict`: candidates, criteria and the recipe's question answered
- `frontier`: accuracy against speed or work
- `ceilings`: the most that can be gained, also before a sweep runs
- `statistics`: the arithmetic below all of it
"""

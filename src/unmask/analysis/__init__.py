"""What results mean: statistics, guards, a verdict and the frontier. Needs no torch.

- `table`: results of experiments side by side, out of a store; `foreign`: the same of imported summaries
- `likeness`: which configurations must behave alike, and the work that was counted
- `samples`: two runs sample by sample; `gains`: by speed, counted work, tokens a forward
- `guards`: what makes results invalid or doubtful
- `losses`: what configurations lose against the control, at one level for a whole table
- `verdict`: candidates, criteria and the recipe's question answered
- `frontier`: accuracy against speed or work
- `ceilings`, `forecast`: what a sweep can gain and how long it will take, before it runs
- `statistics`, `words`: the arithmetic below all of it, and how numbers are written
"""

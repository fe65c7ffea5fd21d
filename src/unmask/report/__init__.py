"""Reports for people: results.md and one self-contained report.html. Needs no torch.

- `gather`: results, verdicts and findings out of a store, as a `document`
- `lines`: one configuration of one task, with everything a table says of it
- `tables`: columns, the summary over experiments, heat maps
- `sentences`: what the figures come to, in words
- `markdown`, `page`: the two forms of a document
- `figures`: pictures, drawn by the elements in `svg`
- `flips`, `replays`: what the page shows of single samples

All statistics are those of `unmask.analysis`; nothing is computed here that could be wrong in its own way.
"""

"""Reports for people: results.md and one self-contained report.html. Needs no torch.

- `gather`: results, verdicts, findings, attempts and provenance out of a store, as a `document`
- `tables`: columns, the summary over experiments, heat maps; `sentences`: what the figures come to, in words
- `samples`: flipped samples, and recordings for the denoising viewer
- `figures`: pictures, drawn by the elements in `svg`
- `markdown`, `page`: the two forms of a document

All statistics are those of `unmask.analysis`; nothing is computed here that could be wrong in its own way.
"""

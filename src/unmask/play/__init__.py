"""`unmask play` and `unmask chat` without their looks: decodings side by side as events, conversations as turns."""

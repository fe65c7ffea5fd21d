"""The first cases: inputs on which version 0.1 hung, failed without a word, or took nonsense for sense."""

from world import Case

KNOWN: list[Case] = []

"""The synthetic curriculum: arithmetic stories, choice questions, instructions and drills, all from a seed."""

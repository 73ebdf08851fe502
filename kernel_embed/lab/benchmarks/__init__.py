"""Where we stand in speed: ours and others' on the same problem, in one run, as ratios."""

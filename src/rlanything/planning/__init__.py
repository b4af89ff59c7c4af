"""The plan of a recipe before it runs: memory by part, tokens of an iteration, and a time."""

"""The plan of a recipe before it runs: memory by part, tokens per iteration, and time."""

"""What a recipe will take, before it runs: memory by part, tokens of an iteration, and a time."""

"""What a run will need, worked out on paper: no weights are loaded and no GPU is asked."""

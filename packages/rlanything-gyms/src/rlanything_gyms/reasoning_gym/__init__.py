"""reasoning-gym's datasets: generated questions with checked answers."""

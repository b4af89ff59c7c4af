"""reasoning-gym's datasets: questions that are generated, and answers that are checked."""

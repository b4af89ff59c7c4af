"""Small physical worlds in MuJoCo, whose parameters are the task."""

"""Files from elsewhere, read to the letter: rollouts in, step-wise signals out; YAML."""

"""What comes from elsewhere: rollouts in, step-wise signals out; YAML to the letter; odd text."""

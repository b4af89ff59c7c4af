"""One optimizer step of the learner and of TRL, on the same samples: for learner.py."""

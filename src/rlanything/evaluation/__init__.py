"""Evaluation of the policy and the judge, with confidence intervals."""

"""How good the policy and the judge are, and how sure we can be."""

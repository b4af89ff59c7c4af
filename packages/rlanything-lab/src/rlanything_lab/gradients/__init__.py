"""Whether the gradients of a run pull in the same direction."""

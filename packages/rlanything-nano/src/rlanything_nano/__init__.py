"""The tiny models that ship, and how `rlanything nano build` makes them from a seed."""

"""How the tiny models are made, from a seed, by `rlanything nano build`."""

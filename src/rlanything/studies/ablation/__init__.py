"""A recipe run many times over, each time with something left out or done otherwise."""

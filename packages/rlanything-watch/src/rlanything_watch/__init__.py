"""A run in the terminal, while it trains and after."""

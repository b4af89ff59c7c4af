"""A run as one page that explains itself: facts read from the store, put into one HTML file."""

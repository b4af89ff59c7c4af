"""The report of a run as one HTML file: facts read from the store, and the page."""

"""Ray as a launcher: seats and environment workers on the machines of a Ray cluster."""

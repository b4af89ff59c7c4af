"""Computer use: OSWorld's tasks and evaluators on a Linux desktop in namespaces."""

"""The parts of benchmarks/vision.py: a tiny model that sees, and recorded episodes shown to it."""

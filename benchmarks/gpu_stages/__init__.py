"""The stages of benchmarks/gpu.py, one function each."""

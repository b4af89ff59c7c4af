"""The families of tasks: push a block, balance a pole, throw a ball, drive over a slope."""

"""Gymnasium's environments, including those that other packages register there."""

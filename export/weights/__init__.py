"""Weights of others: which there are, where they come from, and whether they are what was pinned."""

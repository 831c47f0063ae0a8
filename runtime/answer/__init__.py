"""Questions and goals answered: what is asked becomes a prompt, the model's words become clauses in the speech queue.

Knows the engine, the scene and the speech queue; knows no torch and nothing of how depth is measured.
"""

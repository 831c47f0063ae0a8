"""From a checkpoint to a bundle: everything put back together, then written as graphs, hashed, whole or not at all."""

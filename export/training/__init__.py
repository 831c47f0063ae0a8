"""From a data set of clips to checkpoints: reading, sampling, batches, the two stages, and going on after a kill."""

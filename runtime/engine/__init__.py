"""Runs a bundle's graphs: frames, sensors and a prompt in, tokens out. Knows no session, no speech and no torch."""

"""A detector's words for the obstacles of the scene: which box is which obstacle, and whether it held often enough.

The scene knows where things are; a detector knows what is in a picture. Nothing here makes an obstacle or moves one:
without a detector, or where it isn't sure, an obstacle is called "Obstacle".
"""

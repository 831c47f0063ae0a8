"""Text in the scene: read from pictures, kept by place, and quoted as data.

Knows no session and no model: ``reader`` and ``superres`` turn a picture into lines (a second, in a worker), ``places``
and ``quote`` turn lines into what a prompt or the wearer is told (under 1 ms, on the loop).
"""

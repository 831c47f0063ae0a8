"""Reads recordings in a child process, because the native readers can take the interpreter down with them.

wire.py         what crosses: typed messages and the ring of decoded frames
recording.py    child: the recording itself, in order of device time (the one module that calls projectaria_tools)
calibration.py  child: its calibrations as a ``Rig``
plan.py         child: which camera frames are decoded
__main__.py     child: ``python -m handrail.streams.reader``
process.py      main process: asks, restarts the child when it dies, skips what it dies on
"""

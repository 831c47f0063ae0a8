"""Reads recordings in a child process, because the native readers can take the interpreter down with them.

wire.py         what crosses: typed messages and the ring of decoded frames
recording.py    child: the recording itself, in order of device time (the one module that opens projectaria_tools)
order.py        child: all records in one order of time
readings.py     child: one sensor record as a row of numbers
calibration.py  child: its calibrations as a ``Rig``
plan.py         child: which camera frames are decoded
__main__.py     child: ``python -m handrail.streams.reader``
chatter.py      what native code prints
process.py      main process: asks, restarts the child when it dies, skips what it dies on
unpack.py       main process: what came over the wire as payloads of samples
"""

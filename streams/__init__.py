"""Typed samples from Project Aria glasses, live, recorded or simulated.

Knows units, clocks, calibration, the rolling buffer and sources. Knows nothing of models or speech, and imports no
other room.

Frames used throughout the project (right-handed, metres, radians unless a name says otherwise):

device   Aria's own device frame; every extrinsic is ``T_device_x`` (4x4, maps x coordinates into device coordinates)
cpf      Aria's central pupil frame on the head: x left, y up, z forward (the nose)
camera   x right, y down, z forward in the *native* image (Gen 1 sensors are mounted turned by 90 degrees)
level    gravity-aligned, fixed since the start (or the last seam): x forward, y left, z up; x is the nose's heading at
         the first attitude, the origin is the cpf position then
wearer   as spoken: bearing in degrees clockwise from the reference heading (negative = left, positive = right),
         distance in metres along the floor from the point below the eyes, height above the floor

Time: ``device_ns`` is the device clock at capture, the only domain used to align; ``host_ns`` is the running loop's
clock (``clock.now_ns``) when the sample was handed over.
"""

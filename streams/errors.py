"""Every error Handrail raises on purpose.

HandrailError                 one line for people: what was expected, what came, what to do
├── InputError                bad input: exit code 2
│   ├── SourceError           a recording, world or device that can't be opened or read
│   ├── ConfigError           a configuration file or option
│   ├── OutputError           a folder or file that can't be written
│   ├── BundleError           a bundle of model files that isn't what its manifest says
│   ├── ModelError            weights that can't be fetched, or aren't those that were pinned
│   ├── DataError             a line of a data set
│   └── CheckpointError       a checkpoint of a training that is damaged, or of another one
├── MissingDependencyError    something that isn't installed: exit code 3, the message holds the command that mends it
├── StaleError                data older than the caller allowed
└── DeviceError               a voice, speaker or other device that failed

Foreign errors (SDK, OpenCV, sound library, operating system) are translated into these at the edge where they appear.
"""

from __future__ import annotations


class HandrailError(Exception):
    """Base of all. ``exit_code`` is what the command line returns when one reaches it."""

    exit_code = 1


class InputError(HandrailError):
    exit_code = 2


class SourceError(InputError):
    pass


class ConfigError(InputError):
    pass


class DataError(InputError):
    pass


class CheckpointError(InputError):
    pass


class OutputError(InputError):
    pass


class BundleError(InputError):
    pass


class ModelError(InputError):
    pass


class MissingDependencyError(HandrailError):
    exit_code = 3


class StaleError(HandrailError):
    pass


class DeviceError(HandrailError):
    pass

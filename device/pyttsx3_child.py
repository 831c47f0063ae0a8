"""The process that holds pyttsx3: one engine, one utterance, one WAV file.

``python -m handrail.device.pyttsx3_child WAV_PATH RATE_WPM`` with the text on stdin. pyttsx3 can't be trusted to play,
stop or report on Linux (it reports silence as completed), but the file that ``save_to_file`` makes is whole.
"""

from __future__ import annotations

import sys

import pyttsx3


def main() -> None:
    path, rate_wpm = sys.argv[1], int(sys.argv[2])
    text = sys.stdin.buffer.read().decode()
    engine = pyttsx3.init()
    engine.setProperty("rate", rate_wpm)
    engine.save_to_file(text, path)
    engine.runAndWait()


if __name__ == "__main__":
    main()

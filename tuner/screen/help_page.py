"""The help page: what the keys do."""

from __future__ import annotations

from rich.text import Text
from rltune.screen.drawing import ACCENT, QUIET, fitted

KEYS = (
    ("j  k  or arrows", "select the next or the last training; g and G: the first, the last"),
    ("Enter", "its page: curve, rungs, configuration, cost; j and k go on to the next"),
    ("Esc", "back"),
    ("s", 'stop the selected trial; y confirms. It ends as PRUNED, reason "by hand",'),
    ("", "keeps its values, and is not run again"),
    ("q", "stop the search; y confirms. `rltune resume` goes on with it"),
    ("Ctrl-C", "the same at once; a second one does not wait for anything"),
    ("Ctrl-Z", "suspend; fg goes on"),
)
SIGNS = (
    ("━ ╌", "at a rung: went on, and stopped early"),
    ("← 12, 14", "on their way to the rung"),
    ("┄", "what the best trial has"),
)


def help_lines(width: int, height: int) -> list[Text]:
    """Return the lines of the page."""
    lines = [Text("Keys", "bold")]
    lines += [Text.assemble((f"  {key:<18}", ACCENT), text) for key, text in KEYS]
    lines += [Text(), Text("Signs", "bold")]
    lines += [Text.assemble((f"  {sign:<18}", ACCENT), text) for sign, text in SIGNS]
    lines += [Text(), Text("From another terminal: rltune stop RUN --trial N", QUIET)]
    return fitted(lines[:height], width)

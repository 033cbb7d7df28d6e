"""Formats of numbers, times and configurations for people."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def score(value: float | None) -> str:
    """Return a score: one decimal, more below ten, none from a thousand on; "-" for none."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "diverged" if value < 0 else "∞"
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def gain(a: float, b: float) -> str:
    """Return ``a - b`` with its sign, as it follows from the two as they are written: "+66.7"."""
    texts = [score(value).replace(",", "") for value in (a, b)]
    if not (math.isfinite(a) and math.isfinite(b)) or any("e" in text for text in texts):
        return f"{a - b:+.3g}"
    decimals = min(len(text.partition(".")[2]) for text in texts)
    return f"{float(texts[0]) - float(texts[1]):+,.{decimals}f}"


def interval(low: float, high: float) -> str:
    """Return "60.1 to 94.3"; nothing where there is none, as of fewer than five runs.

    `points` shows the scores then.
    """
    return "" if low == -math.inf and high == math.inf else f"{score(low)} to {score(high)}"


def points(values: Iterable[float]) -> str:
    """Return "480.0, 490.0, 495.0" or "all 500.0": scores that say too little for an interval."""
    known = list(values)
    if len(known) > 1 and len(set(known)) == 1:
        return f"all {score(known[0])}"
    return ", ".join(map(score, known))


def interval_title(ends: Iterable[tuple[float, float]]) -> str:
    """Return the title of a column of `interval` or `points`: "scores" where none has ends."""
    return "95 % interval" if any(interval(*each) for each in ends) else "scores"


def duration(seconds: float | None) -> str:
    """Return "0:42", "12:31" or "2:05:00"; "-" for none."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rung_at(env_steps: int, seconds: float | None) -> str:
    """Return a rung as text: "5,556" env steps, or "13.3 s" where seconds count."""
    if seconds is None:
        return f"{env_steps:,}"
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def count(value: float) -> str:
    """Return a number of steps: "5,923", from a million on "1.25 M"."""
    if value >= 1e9:
        return f"{value / 1e9:.2f} G"
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"


def size(n_bytes: float) -> str:
    """Return "0.12 MB", "38 MB" or "1.2 GB"."""
    mega = n_bytes / 1e6
    if mega >= 1000:
        return f"{mega / 1000:,.3g} GB"
    return f"{mega:.0f} MB" if mega >= 10 else f"{mega:.2g} MB"


def plural(amount: int, word: str) -> str:
    """Return "1 trial", "2 trials"."""
    return f"{amount:,} {word}" if amount == 1 else f"{amount:,} {word}s"


def short_path(path: Path) -> str:
    """Return the path as one would type it here: relative where it lies below this folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def setting(value: object) -> str:
    """Return a hyperparameter's value in at most four significant digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # 1 - 0.9997 is what matters of a discount factor: keep the digits after the nines.
        digits = 4 if not 0.99 < value < 1 else 3 - math.floor(math.log10(1 - value))
        return f"{value:.{digits}g}"
    if isinstance(value, (list, tuple)):
        return ",".join(setting(item) for item in value)
    return "none" if value is None else str(value)


def settings(config: Mapping[str, Any], names: Collection[str] | None = None) -> list[str]:
    """Return "learning_rate 0.00103", ... of a configuration; only ``names`` where given."""
    shown = {name: config[name] for name in config if names is None or name in names}
    return [f"{name} {setting(value)}" for name, value in shown.items()]


def listed(names: Sequence[str]) -> str:
    """Return names as words: "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}"

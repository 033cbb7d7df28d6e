"""Benchmark rltune's overhead: 100 trivial trials, and resuming a search of 500 trials.

    python scripts/benchmark_driver.py
    python scripts/benchmark_driver.py --scale  # 2,000 trials: does the overhead grow?

The trials train nothing (tests/tuner/toy.py), so the time is that of Ray Tune, the study and the
history. Ray is started before the clock.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

TOYS = Path(__file__).resolve().parent.parent / "tests" / "tuner"
# Two dimensions: with one, thousands of trials would soon have tried every good value.
SPACE = {"space": {"quality": {"uniform": [0.0, 1.0]}, "at": {"int": [1, 1000]}}}


def main() -> None:
    os.chdir(TOYS)
    sys.path.insert(0, str(TOYS))
    import rltune
    from rltune.cluster.session import ray_session

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", action="store_true", help="run 2,000 trials instead")
    scale = parser.parse_args().scale
    options = {"budget": 90, "wandb": "off", "report": False, "screen": "none", "tournament": False}
    with tempfile.TemporaryDirectory() as folder, ray_session():

        def search(name: str, trials: int) -> float:
            started = time.time()
            rltune.Search(
                "toy:ToyAgent", "toy:ToyEnv", SPACE, trials=trials, name=name,
                storage_path=folder, **options,
            ).run()  # fmt: skip
            return time.time() - started

        search("warm-up", 4)
        if scale:
            search("scale", 2000)
            ends = sorted(rltune.open(Path(folder) / "scale").trials()["finished"])
            print(f"the first 200 trials: {(ends[200] - ends[0]) / 200 * 1000:.0f} ms each")
            print(f"the last 200 trials: {(ends[-1] - ends[-201]) / 200 * 1000:.0f} ms each")
            return
        hundred = search("hundred", 100)
        search("many", 500)
        started = time.time()
        first: list[float] = []
        from rltune.search.driver import Driver

        begin = Driver.on_result

        def on_result(driver: Driver, *args: object) -> bool:
            first.append(time.time() - started)
            return begin(driver, *args)  # type: ignore[arg-type]

        Driver.on_result = on_result  # type: ignore[method-assign, assignment]
        rltune.resume(Path(folder) / "many", screen="none", trials=502)
    names = ("rltune", "ray", "optuna")
    print(f"{time.strftime('%Y-%m-%d')}; " + ", ".join(f"{n} {version(n)}" for n in names))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"100 trivial trials through the whole path: {hundred:.1f} s")
    print(f"resume of a 500-trial search, to its first new result: {first[0]:.1f} s")


if __name__ == "__main__":
    main()

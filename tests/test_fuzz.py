"""The fuzzer says what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "fuzz.py"


def test_without_its_package_the_fuzzer_says_what_to_install() -> None:
    code = (
        "import runpy, sys; sys.modules['atheris'] = None; "
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr == "fuzz.py needs the package atheris: pip install atheris\n"

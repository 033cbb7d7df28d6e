"""`python -m rltune` is `rltune`."""

import sys

from rltune.cli import main

sys.exit(main())

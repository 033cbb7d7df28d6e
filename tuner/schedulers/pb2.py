"""Population based bandits (PB2): PBT that learns where to go, for small populations.

Parker-Holder et al., "Provably Efficient Online Hyperparameter Optimization with Population-Based
Bandits" (NeurIPS 2020, arXiv:2002.02518). Which member takes over from which is decided as in PBT;
`bandit_explorer.py` chooses the values that it goes on with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltune.schedulers.pbt import PBT

if TYPE_CHECKING:
    from rltune.schedulers.explorers import Explorer


class PB2(PBT):
    """Population based bandits."""

    name = "pb2"

    @classmethod
    def explorer_class(cls) -> type[Explorer]:
        """Return the class that changes configurations."""
        from rltune.schedulers.bandit_explorer import PB2Explorer  # late: it needs SciPy

        return PB2Explorer

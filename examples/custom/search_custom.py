"""The same search from Python: agent and environment from modules of one's own."""

from __future__ import annotations

import rltune

if __name__ == "__main__":
    result = rltune.Search(
        agent="my_agent:MyAgent",
        env="my_env:MyEnv",
        space={
            "fixed": {"n_envs": 8, "n_steps": 50},
            "space": {
                "learning_rate": {"log": [1e-3, 3e-2]},
                "gamma": {"one_minus_log": [0.8, 0.99]},
            },
        },
        budget=10_000,
        trials=6,
        seed=0,
        tournament=False,
        report=False,
    ).run()
    print(result.best)
    print(result.trials()[["trial", "state", "objective"]])

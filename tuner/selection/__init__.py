"""Algorithm selection: one search over several agents (Rice, "The Algorithm Selection Problem").

`rltune run ppo,sac,td3` and `rltune run auto` search each agent's own space in a run directory of
its own, and move the budget from agents that fall behind to those that lead (`rounds.py`). The two
leading agents' best configurations meet in tournaments on the same test seeds (`answer.py`).
"""

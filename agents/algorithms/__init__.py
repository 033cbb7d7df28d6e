"""The algorithms: A2C, ACER, DDPG, DQN, PPO, SAC, TD3 and TRPO, each with its loss and its configuration."""

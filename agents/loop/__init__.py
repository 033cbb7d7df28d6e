"""The training loop: an agent that acts, remembers, learns, is evaluated and saved."""

"""Networks: encoders, actors, critics, and distributions of actions."""

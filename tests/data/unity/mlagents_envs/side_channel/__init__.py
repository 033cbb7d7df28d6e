"""Side channels: messages beside observations and actions."""

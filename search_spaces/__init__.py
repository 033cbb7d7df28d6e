"""The search spaces that ship with rltune, one YAML file per agent."""

"""Exported policies: files of `rltune export --to`, read back and asked for actions."""

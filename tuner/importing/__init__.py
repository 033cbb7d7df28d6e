"""Imports: other libraries' training configurations in rltune's words."""

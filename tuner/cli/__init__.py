"""The command line; each command lives in a module of its own and imports nothing heavy before it runs."""

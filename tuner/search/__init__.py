"""The search: its request and checks, its assembly, its driver, and its end.

`search` takes a request apart (`request`, `space_choice`, `checks`), and `assembly` puts the parts
together. `driver` chooses what runs next; `judging` and `retesting` conclude from results of the
search and of the tournament, `stop_rules` from metrics. `ending` knows when it is over, `liveness`
which workers hang, `jobs` what is under way; `recording` writes everything down.
"""

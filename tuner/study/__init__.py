"""The study: the truth about the trials of a search, in Optuna's storage."""

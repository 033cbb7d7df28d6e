"""Importances of hyperparameters, with their error."""

"""Objectives: how evaluations, several goals and several seeds become the value of a trial."""

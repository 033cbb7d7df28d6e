"""Trainings of the user's own: functions and scripts that report values against a budget."""

"""Parts of `study_portfolios.py`."""

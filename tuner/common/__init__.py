"""Helpers of every package: files, formats, reading, redaction, provenance, the terminal."""

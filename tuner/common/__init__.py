"""What every package uses: files, formats, reading, redaction, provenance, the terminal."""

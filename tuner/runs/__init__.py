"""Run directories: specifications, histories, tables, and copies in the cloud."""

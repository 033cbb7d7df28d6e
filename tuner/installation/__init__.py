"""What is installed, and what the machine offers: `rltune doctor`."""

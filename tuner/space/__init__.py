"""Search spaces: dimensions, conditions, constraints, and the language that they are written in."""

"""Statistics: estimates with intervals, aggregates over runs, and Pareto fronts."""

"""The machine below the agents: free memory, threads, and the speed of numerical libraries."""

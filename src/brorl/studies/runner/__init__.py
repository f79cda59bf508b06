"""What every study shares: the plan, the runs, the analysis, the report."""

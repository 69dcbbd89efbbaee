"""Why texts change with their length: a pass that watches attention, null models, probes, and the report of all."""

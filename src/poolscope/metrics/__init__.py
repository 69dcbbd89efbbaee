"""What can be measured: one folder or file a metric, each with its measurement, its result and its figure."""

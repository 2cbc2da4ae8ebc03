"""The command line and the composition: the one place that may import everything."""

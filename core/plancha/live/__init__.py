"""What a worker looks like at this moment, for those who watch it."""

"""More than the worker can do: queues, quotas, deadlines and targets. Start at `overload`."""

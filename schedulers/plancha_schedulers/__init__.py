"""The built-in schedulers: who is next, and who gives way."""

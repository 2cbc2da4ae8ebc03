"""A server somewhere else, as commands ask it: its address, a key, and what goes wrong."""

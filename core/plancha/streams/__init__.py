"""The client's half of a request: ids come in by frames, text goes out. Start at `generation`."""

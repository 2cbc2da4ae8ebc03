"""Between a gateway and its worker: memory, or a Unix socket. Start at `link`."""

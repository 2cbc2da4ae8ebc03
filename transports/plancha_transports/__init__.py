"""The built-in doors: HTTP with server-sent events, and WebSocket."""

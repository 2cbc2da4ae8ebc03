"""The built-in allocators: which sequence holds which KV block."""

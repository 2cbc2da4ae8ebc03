"""The load generator: any OpenAI-compatible server, closed or open loop, measured per request."""

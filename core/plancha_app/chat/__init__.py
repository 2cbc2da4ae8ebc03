"""`plancha chat`: a conversation with any OpenAI-compatible server, in a terminal or a pipe."""

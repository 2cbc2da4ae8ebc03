"""`plancha top`: what a server tells of itself in `GET /v1/live`, on a terminal."""

"""What a client calls for, until it is what a worker is asked: words, prompts, schemas."""

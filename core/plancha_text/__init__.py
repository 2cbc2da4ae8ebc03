"""Strings to token ids and back: tokenizers, detokenising, stop strings, chat templates."""

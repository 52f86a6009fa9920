"""Jetway behind a real Triton server: a model for its Python backend, and the repository around it."""

"""Text to token ids and back. Nothing here knows a protocol or the scheduler."""

"""The OpenAI-compatible HTTP API: parses calls into `Call`, formats answers; no more."""

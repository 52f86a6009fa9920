"""The edge: text and protocols outside, token ids inside. Stateless; any number of gateways serve one scheduler."""

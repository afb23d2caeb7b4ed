"""The classifier: reads `tokenize.requests` and decides which worker answers each request."""

"""Workers that keep no session: `consumers.classifier` routes requests, `consumers.cpu_fallback` encodes in
full."""

"""Facts: events, attempts and observations, from the recorder to the committed row."""

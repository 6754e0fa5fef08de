"""The API: one app, one file of routes per noun."""

"""The demo: a real model host whose attempts are recorded, predicted and scored."""

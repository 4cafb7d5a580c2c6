"""Real clients in front of the gateway, a scripted model behind it. README.md says how it is put together."""

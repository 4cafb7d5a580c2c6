"""The gateway: any client dialect in front of any upstream."""

"""The HTTP server: uvicorn's protocol with our limits, and one connection as an exchange sees it."""

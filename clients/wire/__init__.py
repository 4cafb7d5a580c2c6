"""The three dialects as a vendor's server speaks them, written apart from the gateway's own codecs on purpose.

Each module has `read` (what a request says, with every objection a vendor would have to it), `stream` and `body` (a
turn of the model), `error_body` and `error_frames`.
"""

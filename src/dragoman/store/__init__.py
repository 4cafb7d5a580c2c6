"""The store of state that outlives a request: responses, claims on them, and seals. `contract.py` defines its guarantees."""

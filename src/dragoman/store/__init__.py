"""What outlives a request: stored responses, claims on them, and the escrow of seals. `base` is the contract."""

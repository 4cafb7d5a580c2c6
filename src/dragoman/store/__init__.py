"""What outlives a request: stored responses, claims on them, and the escrow of seals. `contract` says what it promises."""

"""Rate limits of upstreams, for clients and operators."""

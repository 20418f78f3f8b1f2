"""Links between nodes: credits and the endpoint that both ends of a link use."""

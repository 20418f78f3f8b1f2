"""The fabric inside a card: buffers, arbiters, routes and the router they make."""

"""Topologies: cards, links, coordinates, routes and bounds."""

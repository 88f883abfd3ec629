"""Graphs: nodes, inference over a graph, symbolic sizes, JSON. Nothing here knows arrays."""

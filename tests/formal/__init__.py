"""Proofs: what must hold in every run, not only in those that a bench happens to make."""

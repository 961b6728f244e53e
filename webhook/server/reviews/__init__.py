"""Admission reviews: what answers them, behind the route /mutate and behind the protocol."""

"""The JSON Patch of a decision: built from edits, and verified before it is sent."""

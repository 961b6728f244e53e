"""The remedies, one module each: its settings, and the function that applies it.

A new remedy is a module here, a field of `webhook.core.policy.model.Remedies`, and a line in
`webhook.core.policy.model.REMEDIES`.
"""

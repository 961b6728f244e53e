"""The remedies. Each is a module with its settings and the function that applies it.

A new remedy is a module here, a field of `webhook.core.policy.model.Remedies` and a line in
`webhook.core.policy.model.REMEDIES`.
"""

"""`linger`, the static helper that keeps a container alive until its runtime has seen it end.

Its source is C, in `src/`; `python -m webhook.linger.build` compiles it for every architecture.
Nothing in this package is imported by the webhook: the helper travels in an image of its own.
"""

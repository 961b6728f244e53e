"""The helper `linger`: a static program that keeps a short container alive for its runtime.

Its C source is in `src/`. `python -m webhook.linger.build` compiles it for every architecture.
The webhook imports nothing from this package, because the helper has its own image.
"""

"""The pure core: an AdmissionReview and a view of the cluster in, a Decision out.

Nothing here knows of HTTP, Kubernetes clients, TLS or clocks; `lint-imports` holds it to that.
"""

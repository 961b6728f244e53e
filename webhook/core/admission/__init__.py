"""The answer to one AdmissionReview: the decision, its cache and its JSON."""

"""What the checks of `webhook.inspect.doctor.run` do."""

"""Run the server: TLS only, on uvicorn with uvloop and httptools."""

from __future__ import annotations

import ssl

import uvicorn
from fastapi import FastAPI

from webhook.tls.files import CertificateDirectory


def serve(app: FastAPI, certificates: CertificateDirectory, host: str, port: int) -> None:
    """Serve until a signal ends it. Raises CertificateError before anything is bound."""
    context = certificates.ssl_context()

    def use_context(_config: uvicorn.Config, _default: object) -> ssl.SSLContext:
        return context

    uvicorn.run(
        app,
        host=host,
        port=port,
        ssl_context_factory=use_context,
        access_log=False,
        log_config=None,
        server_header=False,
        # An idle connection of the API server lives for 90 s (kubernetes client-go transport);
        # closing it sooner races with the next review on it.
        timeout_keep_alive=120,
        ws="none",
    )

# Two images, each by its target:
#   docker build --target podsettle -t REGISTRY/podsettle .    the webhook
#   docker build --target linger -t REGISTRY/linger .          the helper, for --linger-image
# podman, buildah, proxies, package indexes and base images of one's own: docs/install.md.
#
# Two optional secrets, mounted for the steps that download and kept in no layer:
#   pip.conf   configures pip: an index, its credentials
#   ca.crt     the CA certificates that pip trusts, in place of its own

# An image with /bin/sh and Python 3.11 or later as python3, with the modules venv and ensurepip.
ARG PYTHON=python:3.13-slim-bookworm

FROM ${PYTHON} AS build
# A base image may have another user, to whom / is read-only.
USER 0
WORKDIR /src
COPY requirements/run.txt requirements/build.txt requirements/
ENV PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_DISABLE_PIP_VERSION_CHECK=1
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    if [ -e /run/secrets/ca.crt ]; then export PIP_CERT=/run/secrets/ca.crt; fi \
 && python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && python3 -m venv --without-pip /opt/podsettle \
 && /build/bin/pip --python /opt/podsettle/bin/python install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE THIRD_PARTY_NOTICES ./
COPY webhook/ webhook/
# Compiled here: the root file system of the running container is read-only.
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
 && /build/bin/pip --python /opt/podsettle/bin/python install --no-cache-dir --no-deps /dist/*.whl \
 && /opt/podsettle/bin/python -m compileall -q /opt/podsettle/lib

# The compiler runs on the builder's architecture and writes for the image's.
FROM --platform=${BUILDPLATFORM} ${PYTHON} AS compile
USER 0
WORKDIR /src
COPY requirements/linger.txt requirements/
ENV PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_DISABLE_PIP_VERSION_CHECK=1
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    if [ -e /run/secrets/ca.crt ]; then export PIP_CERT=/run/secrets/ca.crt; fi \
 && python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/linger.txt
COPY webhook/linger/ webhook/linger/
# Without a default: BuildKit prefers a default to the architecture that it builds for.
ARG TARGETARCH
RUN /build/bin/python -m webhook.linger.build --arch "${TARGETARCH}" --out /out \
 && mv "/out/linger-${TARGETARCH}" /out/linger

FROM scratch AS linger
LABEL org.opencontainers.image.title=linger org.opencontainers.image.licenses="Apache-2.0 AND MIT"
COPY --from=compile /out/linger /linger
COPY LICENSE THIRD_PARTY_NOTICES /licenses/
USER 65532:65532
ENTRYPOINT ["/linger"]

FROM ${PYTHON} AS podsettle
LABEL org.opencontainers.image.title=podsettle org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /opt/podsettle /opt/podsettle
COPY LICENSE THIRD_PARTY_NOTICES /licenses/
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["/opt/podsettle/bin/podsettle"]
CMD ["serve"]

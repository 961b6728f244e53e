# This file builds two images. Choose one by --target:
#   docker build --target podsettle -t REGISTRY/podsettle .    the webhook
#   docker build --target linger -t REGISTRY/linger .          the helper, for --linger-image
# For builders that have no --target, such as OpenShift's, --build-arg IMAGE=podsettle or IMAGE=linger chooses it.
# docs/install.md covers podman, buildah, proxies, your own package index and your own base image.
#
# Two optional secrets are mounted for the steps that download. No layer contains them:
#   pip.conf   configures pip, for example its index and credentials
#   ca.crt     the CA certificates that pip trusts instead of its default list

# The base image. It must have /bin/sh and, as python3, Python 3.11 or later with the modules venv and ensurepip.
ARG PYTHON=python:3.13-slim-bookworm
ARG IMAGE=podsettle

FROM ${PYTHON} AS build
# The user of another base image may not be able to write to /.
USER 0
WORKDIR /src
COPY requirements/run.txt requirements/build.txt requirements/
ENV PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt \
    if [ -e /run/secrets/ca.crt ]; then export PIP_CERT=/run/secrets/ca.crt; fi \
 && python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && python3 -m venv --without-pip /opt/podsettle \
 && /build/bin/pip --python /opt/podsettle/bin/python install --no-cache-dir --no-compile --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE THIRD_PARTY_NOTICES ./
COPY webhook/ webhook/
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
 && /build/bin/pip --python /opt/podsettle/bin/python install --no-cache-dir --no-compile --no-deps /dist/*.whl \
 && /build/bin/python -c "from pathlib import Path; packages = Path('/opt/podsettle/lib'); \
    [file.unlink() for name in ('*_test.py', 'test_*.py') for file in packages.glob(f'*/site-packages/kubernetes/**/{name}')]"
# Byte code is compiled here, because a running container cannot write it: its root file system is read-only. It is in
# a directory of its own, because the standard library of python:slim has none (docker-library/python issue 615). It is
# not checked against the source, because the copy into the image rounds the times of files. All packages are compiled
# except `kubernetes`, whose models are large and not used: of it, and of the standard library, the modules that podsettle
# imports.
RUN /opt/podsettle/bin/python -c "import sys, webhook.cli, webhook.client, webhook.cluster.replica, \
    webhook.images.lookup, webhook.server.app, webhook.server.run, webhook.server.preview.worker; \
    files = [getattr(module, '__file__', None) or '' for module in sys.modules.values()]; \
    print(*(file for file in files if file.endswith('.py')), sep='\\n')" > /tmp/imported \
 && export PYTHONPYCACHEPREFIX=/opt/podsettle/byte-code \
 && /opt/podsettle/bin/python -m compileall -q --invalidation-mode unchecked-hash -i /tmp/imported \
 && /opt/podsettle/bin/python -m compileall -q --invalidation-mode unchecked-hash -x /kubernetes/ /opt/podsettle/lib

# The compiler runs on the builder's architecture and compiles for the image's architecture.
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
# Do not add a default: with one, BuildKit ignores the architecture that it builds for.
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
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONPYCACHEPREFIX=/opt/podsettle/byte-code PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8443 9443
ENTRYPOINT ["/opt/podsettle/bin/podsettle"]
CMD ["serve"]

FROM ${IMAGE}

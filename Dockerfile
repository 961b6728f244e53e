# Two images, each by its target:
#   docker build --target podsettle -t REGISTRY/podsettle .    the webhook
#   docker build --target linger -t REGISTRY/linger .          the helper, for --linger-image
ARG PYTHON=python:3.13-slim-bookworm

FROM ${PYTHON} AS build
WORKDIR /src
COPY requirements/run.txt requirements/build.txt requirements/
RUN python -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
 && python -m venv --without-pip /opt/podsettle \
 && /build/bin/pip --python /opt/podsettle/bin/python install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md ./
COPY webhook/ webhook/
# Compiled here: the root file system of the running container is read-only.
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
 && /build/bin/pip --python /opt/podsettle/bin/python install --no-cache-dir --no-deps /dist/*.whl \
 && /opt/podsettle/bin/python -m compileall -q /opt/podsettle/lib

# The compiler runs on the builder's architecture and writes for the image's.
FROM --platform=${BUILDPLATFORM:-linux/amd64} ${PYTHON} AS compile
ARG TARGETARCH=amd64
WORKDIR /src
COPY requirements/linger.txt requirements/
RUN python -m venv /build && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/linger.txt
COPY webhook/linger/ webhook/linger/
RUN /build/bin/python -m webhook.linger.build --arch "${TARGETARCH}" --out /out && mv "/out/linger-${TARGETARCH}" /out/linger

FROM scratch AS linger
COPY --from=compile /out/linger /linger
USER 65532:65532
ENTRYPOINT ["/linger"]

FROM ${PYTHON} AS podsettle
COPY --from=build /opt/podsettle /opt/podsettle
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["/opt/podsettle/bin/podsettle"]
CMD ["serve"]

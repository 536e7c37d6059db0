# The base of all stages: any image with Python 3.11 or later, as python3, and its venv module. Named by its digest, so
# that the same sources make the same image; a newer base is a change of this line. Others: --build-arg BASE=…
# From Debian's archive comes libbpf alone, with what it needs: whichever version is the stable one's on that day.
ARG BASE=docker.io/library/python:3.13.15-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285
ARG VERSION=0.1.0

# what runs, without the program: its libraries that are not Python's. The CUDA probe loads libbpf.so.1 when it is on.
FROM ${BASE} AS system
RUN if command -v apt-get >/dev/null; then \
        apt-get update -qq \
        && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "libbpf1=1:1.*" \
        && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/ldconfig/aux-cache /var/log/apt /var/log/dpkg.log; \
    else echo "no apt-get here: the CUDA probe will miss libbpf.so.1" >&2; fi

# the CUDA probe's program for the kernel; its compiler stays behind
FROM system AS probe
COPY release/compile-probe /src/release/
COPY exporter/probe /src/exporter/probe
RUN if command -v apt-get >/dev/null; then \
        apt-get update -qq \
        && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "clang=1:*" "llvm=1:*" "libbpf-dev=1:1.*"; \
    fi \
    && /src/release/compile-probe --if-possible

FROM system AS build
COPY requirements.lock /src/
# --target instead of the environment itself: what runs needs neither pip nor an environment
RUN python3 -m venv /src/venv \
    && /src/venv/bin/pip install --no-cache-dir --require-hashes --only-binary=:all: --target /opt/exporter \
        -r /src/requirements.lock \
    && rm -rf /opt/exporter/bin
# What the image is made of, as CycloneDX: the Python packages read from what was installed, by a tool that stays behind
# in this stage; then Python itself and the Debian packages, which are those of what runs: neither stage adds any.
ARG VERSION
COPY requirements-sbom.lock pyproject.toml release/os_packages.py /src/
RUN python3 -m venv /src/sbom \
    && /src/sbom/bin/pip install --no-cache-dir --require-hashes --only-binary=:all: -r /src/requirements-sbom.lock \
    && python3 -m venv --without-pip /src/bare \
    && sed -i "s/^dynamic = .*/version = \"${VERSION}\"/" /src/pyproject.toml \
    && PYTHONPATH=/opt/exporter PYTHONWARNINGS=ignore /src/sbom/bin/cyclonedx-py environment /src/bare/bin/python \
        --pyproject /src/pyproject.toml --output-reproducible --of JSON -o /opt/exporter/sbom.cdx.json \
    && /src/sbom/bin/python /src/os_packages.py /opt/exporter/sbom.cdx.json /var/lib/dpkg/status /etc/os-release
COPY exporter /opt/exporter/exporter
COPY --from=probe /src/exporter/probe /opt/exporter/exporter/probe
# compiled here: the root file system is read-only when it runs. Not checked by time: a copy into the next stage may round
# the times of files, and a third of them would be compiled anew at every start and healthcheck.
RUN python3 -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/exporter
# the command's name, for `kubectl exec … pod-gpu-metrics-exporter doctor`
RUN mkdir /src/bin \
    && printf '#!/bin/sh\nexec python3 -m exporter "$@"\n' >/src/bin/pod-gpu-metrics-exporter \
    && chmod 755 /src/bin/pod-gpu-metrics-exporter

FROM system
ARG VERSION
# the commit that it is built from: --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pod-gpu-metrics-exporter" \
    org.opencontainers.image.description="dcgm-exporter's GPU metrics with the pod, namespace and container that own each GPU" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.version="${VERSION}"
COPY --from=build /opt/exporter /opt/exporter
COPY --from=build /src/bin/pod-gpu-metrics-exporter /usr/local/bin/pod-gpu-metrics-exporter
COPY LICENSE /opt/exporter/LICENSE
# to which the alerts' annotation `runbook` leads: kubectl exec … cat /opt/exporter/docs/alerts.md
COPY docs/*.md /opt/exporter/docs/
# the last is for build_info{revision}
ENV PYTHONPATH=/opt/exporter PYTHONDONTWRITEBYTECODE=1 EXPORTER_REVISION=${REVISION}
WORKDIR /
EXPOSE 9400
# No USER: the kubelet's socket is in a folder of uid 0. It needs no capability, and with a socket that another user may
# open, any user will do.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s CMD ["pod-gpu-metrics-exporter", "healthcheck"]
ENTRYPOINT ["pod-gpu-metrics-exporter"]
CMD ["serve"]

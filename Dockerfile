# Build:  docker build --tag tenure .
# Run:    docker run --init=false --publish 8080:8080 --env TENURE_REDIS__URL=redis://redis:6379/0 tenure
# Stop:   docker stop --time 30 …   (the grace of 20 s and 3.5 s more must fit; Docker's default of 10 s does not)

# Stage 1 has pip and leaves with its caches; only the virtual environment goes on.
FROM python:3.13.15-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/tenure
COPY pyproject.toml README.md LICENSE ./
COPY supervisor ./supervisor
COPY jobs ./jobs
COPY tenure ./tenure
# What the locks name, file by file; the wheel is built by what the lock names, too.
COPY requirements ./requirements
RUN python -m pip install --require-hashes --requirement requirements/build.txt \
 && python -m pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
 && /opt/tenure/bin/pip install --require-hashes --requirement requirements/image.txt \
 && /opt/tenure/bin/pip install --no-deps /tmp/wheels/*.whl \
 && /opt/tenure/bin/python -m compileall -q /opt/tenure/lib

# Stage 2 runs as an unprivileged user that owns nothing but the data directory.
FROM python:3.13.15-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e
RUN groupadd --gid 10001 tenure \
 && useradd --uid 10001 --gid tenure --home-dir /var/lib/tenure --create-home --shell /usr/sbin/nologin tenure
COPY --from=build /opt/tenure /opt/tenure
COPY deploy/healthcheck.py deploy/defaults.yaml /opt/tenure/
COPY config /etc/tenure/examples
ENV PATH=/opt/tenure/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TENURE_DEFAULTS=/opt/tenure/defaults.yaml
WORKDIR /var/lib/tenure
USER 10001:10001
EXPOSE 8080
VOLUME ["/var/lib/tenure"]
STOPSIGNAL SIGTERM
# Liveness only: a Redis outage must not make an orchestrator kill every replica at once.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["python", "-I", "/opt/tenure/healthcheck.py"]
# Exec form: SIGTERM reaches the parent, which is PID 1 and reaps what is orphaned. The kernel drops what PID 1 has no
# handler for; blocked from the first instruction on, a stop during Python's start waits until the parent can hear it.
ENTRYPOINT ["env", "--block-signal=TERM,INT,QUIT,HUP", "tenure"]
CMD ["run"]

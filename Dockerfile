# An image of the gateway: `docker build -t dragoman .`. docs/deployment.md says how to run it.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /build
# First what changes seldom, so that a rebuild takes it from the cache.
COPY requirements/image.txt requirements/release.txt requirements/
RUN python -m venv /opt/dragoman && /opt/dragoman/bin/pip install --no-cache-dir --require-hashes -r requirements/image.txt
RUN python -m venv /build/tools && /build/tools/bin/pip install --no-cache-dir --require-hashes -r requirements/release.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY docs/dialects docs/dialects
RUN /build/tools/bin/python -m build --wheel --no-isolation && /opt/dragoman/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM python:${PYTHON}-slim
COPY --from=build /opt/dragoman /opt/dragoman
# The folder of the store belongs to the user that serves; a new volume takes over its owner.
RUN install -d -o 10001 -g 10001 -m 0700 /var/lib/dragoman
ENV PATH=/opt/dragoman/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/var/lib/dragoman
ENV DRAGOMAN_HOST=0.0.0.0 DRAGOMAN_PORT=8787 DRAGOMAN_LOG_FORMAT=json DRAGOMAN_STORE_URL=sqlite:///var/lib/dragoman/store.db
WORKDIR /var/lib/dragoman
VOLUME /var/lib/dragoman
USER 10001:10001
EXPOSE 8787
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['DRAGOMAN_PORT'] + '/healthz', timeout=2)"]
ENTRYPOINT ["dragoman"]
CMD ["serve"]

# QwenVL on a CPU box: docker build -t qwenvl . && docker run -p 127.0.0.1:5000:5000 -v qwenvl-models:/models qwenvl
# The number of threads follows the container's CPU quota (--cpus 4); there is nothing to set.

FROM node:22-slim AS page
WORKDIR /page
COPY package.json package-lock.json ./
COPY scripts/fetch_page_scripts.sh scripts/
RUN bash scripts/fetch_page_scripts.sh

FROM python:3.11-slim AS python
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /app
COPY requirements.txt ./
COPY scripts/install_requirements.sh scripts/
RUN bash scripts/install_requirements.sh python requirements.txt

# The compiler stays behind in this stage; the kernels are linked with the OpenMP that torch brings.
FROM python AS kernels
RUN apt-get update && apt-get install -y --no-install-recommends g++
COPY qwenvl qwenvl
RUN python -m qwenvl.kernels.build

FROM python
RUN useradd --create-home qwenvl && install -d -o qwenvl -g qwenvl /models
COPY . .
COPY --from=page /page/static/vendor static/vendor
COPY --from=kernels /app/qwenvl/kernels/_build qwenvl/kernels/_build

ENV HOST=0.0.0.0 PORT=5000 HF_HOME=/models
VOLUME /models
EXPOSE 5000
USER qwenvl
# A first start downloads the model; until that is done /health says 503.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30m --retries=3 CMD ["python", "-c", \
    "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=4); \
    c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
CMD ["gunicorn", "-k", "gevent", "-w", "1", "app:create_app()"]

# One image for every service of docker-compose.yml: Spark, lotan with its jar, JupyterLab.
#   docker compose build
#   docker compose build --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu --build-arg TORCH=torch==2.15.0+cpu
# The second takes torch's build without CUDA, which is a tenth of the size.
FROM python:3.11-slim-bookworm AS jar
RUN apt-get update \
 && apt-get install --yes --no-install-recommends maven openjdk-17-jdk-headless \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /lotan
COPY tools tools
COPY jvm jvm
COPY lotan/version.py lotan/version.py
RUN tools/build_jar.sh lotan/jars/lotan-$(sed -n 's/^__version__ = "\(.*\)"/\1/p' lotan/version.py).jar

FROM python:3.11-slim-bookworm
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
ARG PIP_EXTRA_INDEX_URL=
ARG TORCH=torch
WORKDIR /lotan
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY lotan lotan
COPY planner planner
COPY messenger messenger
COPY examples examples
COPY notebooks notebooks
COPY --from=jar /lotan/lotan/jars lotan/jars
RUN pip install --no-cache-dir --constraint constraints.txt "$TORCH" \
 && pip install --no-cache-dir --constraint constraints.txt '.[tensorboard]' jupyterlab
# A new volume takes its owner, and what lies there, from the folder that it is mounted on; JupyterLab starts in /work.
RUN useradd --create-home --uid 1000 lotan \
 && install --directory --owner lotan --group lotan --mode 0700 /keys /work \
 && cp --recursive notebooks /work && chown --recursive lotan:lotan /work/notebooks
USER lotan
WORKDIR /work
ENV PYTHONUNBUFFERED=1

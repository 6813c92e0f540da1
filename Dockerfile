# Two images from one file: `broker` (the default) and `spark`, which adds Java and the data pipeline.
#
#   docker build -t milena .                      docker build -t milena-spark --target spark .
#
# Packages are installed by the launchers' own code from lock files with hashes, into /opt/milena/.venv, where the
# launchers look for them: an image holds what a clone holds after its first start.

# Debian's Python has no pip, and has its runtime inside the program: it serves requests with about 10 % less time than one
# with a shared library (bin/launch.inc).
FROM debian:bookworm-slim AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/milena
# Writable for the user: the data, the list of running brokers (var) and Spark's connector (.cache).
RUN useradd --create-home --uid 10001 milena \
    && install -d -o milena -g milena /var/lib/milena var .cache

# What makes an environment, and makes it smaller: compiled modules carry debugging symbols.
FROM base AS builder
RUN apt-get update \
    && apt-get install --yes --no-install-recommends binutils python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY tools/launch/environment.py tools/launch/environment.py

FROM builder AS broker-packages
COPY requirements.lock .
# pip installs the packages; an image that runs needs neither it nor setuptools. The libraries in *.libs have no symbols.
RUN python3 -I tools/launch/environment.py . requirements.lock \
    && .venv/bin/python -m pip uninstall --yes pip setuptools \
    && find .venv -name '*.so' -not -path '*.libs/*' -exec strip --strip-unneeded {} +

# The hot loops are compiled here; the image gets the result, and no compiler.
FROM builder AS compiled
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements-build.lock .
RUN python3 -I tools/launch/environment.py . requirements-build.lock
COPY . .
RUN PYTHONPATH=. .venv/bin/python -P -m tools.launch.compiling

FROM builder AS spark-packages
COPY requirements.lock requirements-spark.lock ./
RUN python3 -I tools/launch/environment.py . requirements-spark.lock

FROM base AS spark
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-packages /opt/milena/.venv .venv
COPY . .
USER milena
# Starting Spark once brings its Kafka connector into the image: the container needs no network but the brokers'.
RUN PYTHONPATH=. .venv/bin/python -c "from spark_jobs.skeleton.session import spark_session; spark_session('image', {}).stop()"
VOLUME /var/lib/milena
# Drivers, executors and spark-class use this interpreter: the image's own has no packages.
ENV PYSPARK_PYTHON=/opt/milena/.venv/bin/python
ENTRYPOINT ["bin/spark-job"]
CMD ["--help"]

FROM base AS broker
COPY --from=broker-packages /opt/milena/.venv .venv
COPY --from=compiled /opt/milena/.venv/compiled .venv/compiled
COPY . .
RUN rm -rf spark_jobs bin/spark-job \
    && .venv/bin/python -m compileall -q base broker config controller milena_broker protocol storage tools
USER milena
VOLUME /var/lib/milena
EXPOSE 9092
# Any setting is a variable: KAFKA_LOG_RETENTION_HOURS or KAFKA_CFG_LOG_RETENTION_HOURS is log.retention.hours. Topics are
# created by KAFKA_CREATE_TOPICS=name:partitions:replicas,... Clients on the host use `docker run -p 9092:9092`.
# These are the defaults of the image. Settings of the user replace them, whatever prefix their variables have.
ENV DEFAULT_KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    DEFAULT_KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    DEFAULT_KAFKA_LOG_DIRS=/var/lib/milena
# The broker itself names the address to check, so the check follows its listeners (tools/launch/health_probe.py).
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD [".venv/bin/python", "-m", "tools.launch.health_probe"]
# Exec form and a launcher that ends in exec: the broker is process 1 and gets the SIGTERM of `docker stop`.
ENTRYPOINT ["bin/kafka-server-start", "--environment"]

"""The figures of a job as Prometheus metrics, named `spark_job_*`.

Owns the names and the port. A registry of its own keeps other metrics of the process out. What a job observes itself
is served under the names that the job gives it.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from spark_jobs.skeleton.progress import Batch

_LABELS = ("app", "query")


class JobMetrics:
    """Serves the figures of all batches at `address`; raises OSError if the port is taken."""

    def __init__(self, app_id: str, address: tuple[str, int]) -> None:
        host, port = address
        self.registry = registry = CollectorRegistry()
        self._app_id = app_id
        self._own_counters: dict[str, Counter] = {}
        self._own_gauges: dict[str, Gauge] = {}

        def counter(name: str, text: str) -> Counter:
            return Counter(f"spark_job_{name}", text, _LABELS, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"spark_job_{name}", text, _LABELS, registry=registry)

        self._new_counter, self._new_gauge = counter, gauge
        self._records = counter("records", "Records read.")
        self._batches = counter("batches", "Batches finished.")
        self._late = counter("late_rows", "Rows dropped because they arrived later than the watermark allows.")
        self._malformed = counter("malformed_records", "Records that could not be read.")
        self._duration = gauge("batch_duration_seconds", "Duration of the newest batch.")
        self._rate = gauge("records_per_second", "Records read per second of the newest batch.")
        self._lag = gauge("lag_records", "Records in the topics beyond the newest batch.")
        self._state_rows = gauge("state_rows", "Rows of state after the newest batch.")
        self._batch = gauge("batch", "Number of the newest batch.")
        self._server, self._thread = start_http_server(port, host, registry)
        self.port = int(self._server.server_port)

    def on_batch(self, batch: Batch) -> None:
        labels = (self._app_id, batch.query)
        self._records.labels(*labels).inc(batch.records)
        self._batches.labels(*labels).inc()
        self._late.labels(*labels).inc(batch.late)
        self._malformed.labels(*labels).inc(batch.malformed)
        self._duration.labels(*labels).set(batch.duration_ms / 1000)
        self._rate.labels(*labels).set(batch.records_per_second)
        self._lag.labels(*labels).set(batch.lag)
        self._state_rows.labels(*labels).set(batch.state_rows)
        self._batch.labels(*labels).set(batch.number)
        for name, value in batch.counters.items():
            if name not in self._own_counters:
                self._own_counters[name] = self._new_counter(name, "Sum over all batches, of this job.")
            self._own_counters[name].labels(*labels).inc(value)
        for name, value in batch.gauges.items():
            if name not in self._own_gauges:
                self._own_gauges[name] = self._new_gauge(name, "In the newest batch that has it, of this job.")
            self._own_gauges[name].labels(*labels).set(value)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

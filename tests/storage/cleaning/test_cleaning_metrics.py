"""The cleaner's figures as Kafka counts them."""

from storage.cleaning.cleaning_job import CleaningResult
from storage.cleaning.cleaning_metrics import CleanerMetrics, CleaningFigures


def test_metrics_are_zero_before_the_first_pass() -> None:
    figures = CleaningFigures()
    figures.picked(0, dirtiest_ratio=0.0, delay_ms_max=0, now_ms=1000)
    assert figures.at(1500) == CleanerMetrics(0, 0, 0, 0, 0, 500, 0)


def test_metrics_use_the_last_pass_of_each_worker() -> None:
    figures = CleaningFigures()
    figures.picked(0, dirtiest_ratio=0.2, delay_ms_max=90_000, now_ms=1000)
    figures.cleaned(0, CleaningResult(bytes_read=1000, bytes_kept=999, map_utilization=0.9, map_seconds=99))
    figures.cleaned(
        0,
        CleaningResult(
            bytes_read=100, bytes_kept=40, io_size=240, map_utilization=0.25, map_seconds=1.5, copy_seconds=2.5
        ),
    )
    figures.picked(1, dirtiest_ratio=0.759, delay_ms_max=7999, now_ms=3000)
    figures.cleaned(1, CleaningResult(bytes_read=300, bytes_kept=60, io_size=60, map_utilization=0.5, map_seconds=1))
    assert figures.at(3250) == CleanerMetrics(
        max_buffer_utilization_percent=50,
        cleaner_recopy_percent=25,
        max_clean_time_secs=4,
        max_compaction_delay_secs=90,
        max_dirty_percent=75,
        time_since_last_run_ms=250,
        io_size=300,
    )

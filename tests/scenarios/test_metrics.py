"""A worker's numbers, scraped from a real one: names, types, and that they say what happened."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import seep
from seep.model.settings import Settings
from seep.running.job import Job
from seep.runtime.numbers import FAMILIES, HISTOGRAMS
from tests.scenarios.oracles import KEYS, advance, counting, until

ROWS = 1_000_000
LABELS = {"worker", "operator", "partition", "reason", "edge", "le"}
KINDS = ("bucket", "count", "sum", "total")


def scrape(job: Job) -> dict[str, dict[tuple[str, ...], float]]:
    """By sample name: (operator, reason) -> value, summed over workers; also checks types and labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for card in job.directory.registered().values():
        try:
            with urlopen(f"http://127.0.0.1:{card['metrics_port']}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            continue  # killed, and still listed
        for family in text_string_to_metric_families(text):
            assert family.name.startswith("seep_")
            assert family.documentation
            for sample in family.samples:
                histogram = family.name in HISTOGRAMS
                kind = "histogram" if histogram else "counter" if sample.name.endswith("_total") else "gauge"
                assert family.type == kind, sample
                assert set(sample.labels) <= LABELS
                place = (sample.labels.get("operator", ""), sample.labels.get("reason", ""))
                values = found.setdefault(sample.name, {})
                values[place] = values.get(place, 0.0) + sample.value
    return found


def controller(job: Job) -> dict[str, float]:
    """Its own numbers, those without a label."""
    with urlopen(f"http://127.0.0.1:{job._control.metrics_port}/metrics", timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


@pytest.mark.timeout(90)
def test_the_numbers_say_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    job = seep.start(counting("metrics", ROWS, tmp_path / "gate"))
    try:
        until(lambda: ("count", "") in scrape(job).get("seep_rows_in_total", {}), "the first numbers")
        first = scrape(job)
        for family in FAMILIES:
            if family.name == "seep_watermark_lag_seconds":
                continue  # there is no event time
            names = [f"{family.name}_{kind}" for kind in KINDS] if family.name in HISTOGRAMS else [family.name]
            assert {*names} & {*first}, "given from the first scrape on"
        assert first["seep_recoveries_total"]["count", ""] == 0
        assert {reason for _, reason in first["seep_blocked_seconds_total"]} == {"input", "output", "checkpoint"}
        assert {reason for _, reason in first["seep_dropped_total"]} == {"duplicate", "fenced", "late", "skipped"}

        def busy() -> bool:
            now = scrape(job)
            return now["seep_rows_in_total"]["count", ""] > 100 and now["seep_checkpoints_total"]["count", ""] > 1

        until(busy, "rows and checkpoints")
        now = scrape(job)
        assert now["seep_rows_out_total"]["numbers", ""] > 100
        assert now["seep_rows_in_total"]["counts", ""] > 0
        assert now["seep_state_keys"]["count", ""] == KEYS
        assert now["seep_state_bytes"]["count", ""] > 0
        assert now["seep_checkpoint_bytes_total"]["count", ""] > 0
        assert now["seep_checkpoint_duration_seconds_count"]["count", ""] > 1
        assert now["seep_checkpoint_duration_seconds_sum"]["count", ""] > 0
        assert 0 <= now["seep_credit_epochs"]["count", ""] <= Settings().credit_epochs
        assert 0 <= now["seep_credit_bytes"]["count", ""] <= Settings().credit_bytes
        assert now["seep_replace_output_gap_seconds_count"]["counts", ""] == 0
        assert now["seep_epoch"]["count", ""] >= now["seep_durable_epoch"]["count", ""] > 0
        assert now["seep_worker_busy_seconds_total"]["", ""] > 0
        for operator in ("numbers", "count", "counts"):
            assert now["seep_busy_seconds_total"][operator, ""] > 0
        parts = sum(now["seep_busy_seconds_total"].values())
        assert parts < 1.1 * now["seep_worker_busy_seconds_total"]["", ""], "a part of what the workers were busy"
        assert now["seep_latency_seconds_count"]["counts", ""] > 0
        assert now["seep_source_arrived_rows_total"]["numbers", ""] >= now["seep_rows_in_total"]["numbers", ""]
        assert now["seep_blocked_seconds_total"]["count", "input"] > 0
        assert set(now["seep_source_lag_rows"]) == {("numbers", "")}
        assert now["seep_source_lag_rows"]["numbers", ""] < ROWS / 2, "it keeps the pace"
        job.kill("count", 0)
        until(lambda: scrape(job)["seep_recoveries_total"].get(("count", ""), 0) == 1, "the recovery")
        advance(job, 5)
        job.scale("count", 2)
        until(lambda: scrape(job)["seep_replace_output_gap_seconds_count"]["counts", ""] == 1, "the gap of a Replace")
        assert controller(job)["seep_controller_recovery_seconds_count"] >= 1
        assert controller(job)["seep_controller_replace_seconds_count"] == 1
    finally:
        job.close()

"""What lies in deploy/: well-formed, and every number it asks for exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.servers.kafka import KafkaBroker, fetched
from seep.cli.apps import only
from seep.flow.check import runnable
from seep.flow.compile import compile_flow
from seep.runtime import controllernumbers, numbers
from seep.runtime.stores.redis import check
from tests.kafka import make_topic, read_all, write_in_transactions
from tests.servers import RedisServer

DEPLOY = Path(__file__).parents[2] / "deploy"
FAMILIES = (*numbers.FAMILIES, *controllernumbers.FAMILIES)
HISTOGRAMS = numbers.HISTOGRAMS | controllernumbers.HISTOGRAMS
GIVEN_BY_PROMETHEUS = {"flow", "job", "instance"}

GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
MATCHERS = re.compile(r"\{([^}]*)\}")
NAME = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")


def known_labels() -> dict[str, set[str]]:
    """By the name of each series there is: its labels."""
    found: dict[str, set[str]] = {"up": set(GIVEN_BY_PROMETHEUS)}
    for family in FAMILIES:
        labels = {*family.labels, *GIVEN_BY_PROMETHEUS}
        endings = ("_bucket", "_sum", "_count") if family.name in HISTOGRAMS else ("",)
        for ending in endings:
            found[family.name + ending] = labels | ({"le"} if ending == "_bucket" else set())
    return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in alerts())
    yield from (target["expr"] for panel in dashboard()["panels"] for target in panel["targets"])
    yield from (annotation["expr"] for annotation in dashboard()["annotations"]["list"])


def names_and_labels(expression: str) -> tuple[set[str], set[str]]:
    """The series and the labels that a PromQL expression names."""
    labels = {label.strip() for grouped in GROUPING.findall(expression) for label in grouped.split(",")}
    for matchers in MATCHERS.findall(expression):
        labels |= set(re.findall(r"(\w+)\s*[=!]", re.sub(r'"[^"]*"', '""', matchers)))
    rest = GROUPING.sub("", MATCHERS.sub("", re.sub(r"\[[^]]*\]", "", expression)))
    words = {word for word in NAME.findall(rest) if not re.fullmatch(r"e\d+|and|or|unless|by", word)}
    return words, labels


def test_what_a_query_names() -> None:
    query = 'sum by (flow, le) (rate(a_bucket{flow="x",reason!~"b|c"}[5m])) > 2e6 and max(c) / on (flow) d'
    assert names_and_labels(query) == ({"a_bucket", "c", "d"}, {"flow", "le", "reason"})


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_number_exists(expression: str) -> None:
    known = known_labels()
    names, labels = names_and_labels(expression)
    assert names
    assert names <= set(known)
    assert labels <= set.union(*(known[name] for name in names))


def test_the_flows_to_choose_from() -> None:
    (variable,) = dashboard()["templating"]["list"]
    assert variable["query"] == f"label_values({controllernumbers.WORKERS.name}, flow)"


def test_reasons_that_are_asked_for_exist() -> None:
    asked = re.findall(r'reason=~?"([^"]*)"', "".join(expressions()))
    words = {word for alternatives in asked for word in alternatives.split("|")}
    assert words <= {*controllernumbers.HELD, "late"}


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.yml")), ids=lambda path: path.name)
def test_yaml_is_well_formed(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        if isinstance(document, dict) and "kind" in document and document["kind"] not in ("Kustomization", "Pod"):
            assert document["metadata"]["name"]


def test_files_that_are_named_exist() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    mounts = [mount for service in compose["services"].values() for mount in service["volumes"]]
    named = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yml").read_text())
    named += kustomization["resources"]
    named += [path for generator in kustomization["configMapGenerator"] for path in generator["files"]]
    named += yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"]
    copied = re.findall(r"^COPY (.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    named += [f"../{path}" for line in copied for path in line.split()]
    assert [path for path in named if not (DEPLOY / path).exists()] == []


def test_the_example_can_be_run() -> None:
    flow = only(DEPLOY / "app.py")
    assert runnable(flow).nodes["count"].policy == "rate"
    assert f"/{flow.name}/token" in (DEPLOY / "prometheus.yml").read_text()


def test_the_example_from_and_to_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = compose()["flow"]["environment"]["KAFKA"]
    monkeypatch.setenv("KAFKA", asked)
    nodes = {node.name: node for node in compile_flow(only(DEPLOY / "app.py")).nodes.values()}
    source, sink = nodes["lines"].make.connector, nodes["counts"].make.sink
    assert (source.servers, sink.servers) == (asked, asked)
    made = re.findall(r"for topic in (.*); do", (DEPLOY / "kafka-topics.sh").read_text())
    assert made == [f"{source.topic} {sink.topic}"]
    assert f"--topic {source.topic}\n" in (DEPLOY / "kafka-lines.sh").read_text()


def test_servers_are_set_alike_everywhere() -> None:
    """But for addresses."""
    assert kafka_settings() == kafka_settings_of_kubernetes()
    assert set(redis_settings()) == {*redis_settings_of_kubernetes(), "bind"} - {"protected-mode"}


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_can_be_read(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    return services


def workload(name: str) -> dict[str, Any]:
    """The first container of a StatefulSet."""
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yml").read_text())
    [found] = [one for one in documents if one["kind"] == "StatefulSet"]
    container: dict[str, Any] = found["spec"]["template"]["spec"]["containers"][0]
    return container


def kafka_settings() -> dict[str, str]:
    return _properties(compose()["kafka"]["environment"])


def kafka_settings_of_kubernetes() -> dict[str, str]:
    return _properties({one["name"]: one["value"] for one in workload("kafka")["env"]})


def _properties(environment: dict[str, str]) -> dict[str, str]:
    """As the image makes them of its environment, without places."""
    found = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in environment.items()}
    places = ("listeners", "advertised.listeners", "log.dirs", "controller.quorum.voters")
    return {name: value for name, value in found.items() if name not in places}


def redis_settings() -> dict[str, str]:
    return _options(shlex.split(compose()["redis"]["command"]))


def redis_settings_of_kubernetes() -> dict[str, str]:
    return _options(workload("redis")["args"])


def _options(command: list[str]) -> dict[str, str]:
    assert command[0] == "redis-server"
    return dict(zip((name.removeprefix("--") for name in command[1::2]), command[2::2], strict=True))


@pytest.mark.server
@pytest.mark.parametrize("settings", [redis_settings(), redis_settings_of_kubernetes()], ids=["compose", "kubernetes"])
def test_redis_set_like_this_is_good_enough(settings: dict[str, str], tmp_path: Path) -> None:
    server = RedisServer(tmp_path, {**settings, "bind": "127.0.0.1"})
    server.start()
    try:
        check(server.url)
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.server
def test_kafka_set_like_this_has_transactions(tmp_path: Path) -> None:
    if not fetched():
        pytest.skip("no Kafka: tools/setup kafka")
    with KafkaBroker(tmp_path / "broker", kafka_settings()) as broker:
        topic = make_topic(broker.address, "counts", 4)
        write_in_transactions(broker.address, topic, [(True, [b"a"]), (False, [b"b"]), (True, [b"c"])])
        assert [message.value() for message in read_all(broker.address, topic)] == [b"a", b"c"]


def submitted(*command: str | Path, **environment: str) -> str:
    """With a stand-in for spark-submit that says what it was given."""
    python = {"PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    settings = {"SPARK_SUBMIT": "echo", "MASTER": "spark://m:7077", "SPARK_HOME": "", **python, **environment}
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_is_submitted() -> None:
    given = submitted(DEPLOY / "spark-submit.sh", "app.py", "--workers", "4", SPARK_OPTIONS="--conf a=b")
    before = f"--master spark://m:7077 --name seep --conf a=b {DEPLOY}/driver.py run app.py --on spark"
    assert given == f"{before} --master spark://m:7077 --workers 4"


def test_a_container_that_is_started_again_resumes(tmp_path: Path) -> None:
    entry = (DEPLOY / "entrypoint.sh", "flow", "app.py")
    assert submitted(*entry, SEEP_HOME=str(tmp_path)).endswith("--master spark://m:7077")
    (tmp_path / "words" / "begun").mkdir(parents=True)
    assert submitted(*entry, SEEP_HOME=str(tmp_path)).endswith("--master spark://m:7077 --resume")


# --- with Prometheus' own tool -----------------------------------------------------------------------------------

SERIES = {
    "SeepLagGrows": {
        'seep_source_lag_seconds{flow="f",operator="o"}': "20x100",
        'seep_source_lag_rows{flow="f",operator="o"}': "0+100x100",
    },
    "SeepResultsLate": {
        'seep_latency_seconds_bucket{flow="f",operator="o",le="16.0"}': "0+1x100",
        'seep_latency_seconds_bucket{flow="f",operator="o",le="8.0"}': "0x100",
        'seep_latency_seconds_bucket{flow="f",operator="o",le="+Inf"}': "0+1x100",
    },
    "SeepWorkerSilent": {'up{flow="f",instance="i"}': "0x100"},
    "SeepRecoversOften": {'seep_controller_recoveries_total{flow="f"}': "0+1x100"},
    "SeepCheckpointsFail": {'seep_checkpoints_failed_total{flow="f",operator="o"}': "0+1x100"},
    "SeepStoreFails": {'seep_worker_store_failures_total{flow="f"}': "0+1x100"},
    "SeepUnprotected": {
        'seep_unprotected_seconds_total{flow="f",operator="o"}': "0+10x100",
        'seep_state_bytes{flow="f",operator="o"}': "1000x100",
    },
    "SeepDeadLetters": {'seep_dead_letters_total{flow="f",operator="o"}': "0+1x100"},
    "SeepSinkFails": {'seep_worker_publish_failures_total{flow="f"}': "0+1x100"},
    "SeepNoMetrics": {'seep_controller_held_total{flow="f",reason="metrics"}': "0+10x100"},
    "SeepCannotGrow": {'seep_controller_held_total{flow="f",reason="hot-key"}': "0+10x100"},
    "SeepNoSlots": {'seep_controller_held_total{flow="f",reason="slots"}': "0+10x100"},
    "SeepRecoversSlowly": {
        'seep_controller_recovery_seconds_bucket{flow="f",le="16.0"}': "0+1x100",
        'seep_controller_recovery_seconds_bucket{flow="f",le="8.0"}': "0x100",
        'seep_controller_recovery_seconds_bucket{flow="f",le="+Inf"}': "0+1x100",
    },
}
"""What each alert is for, sampled every ten seconds. Without it the alert must be silent."""

needs_promtool = [
    pytest.mark.server,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="no Prometheus"),
]


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TestWithPromtool:
    pytestmark = needs_promtool

    def test_the_configuration(self, tmp_path: Path) -> None:
        promtool("check", "config", "--syntax-only", DEPLOY / "prometheus.yml")
        promtool("check", "rules", DEPLOY / "alerts.yml")
        federate = yaml.safe_load((DEPLOY / "kubernetes" / "federate.yml").read_text())
        # Debian's build knows no Kubernetes.
        assert federate["scrape_configs"][0].pop("kubernetes_sd_configs") == [{"role": "pod"}]
        (tmp_path / "federate.yml").write_text(yaml.safe_dump(federate))
        promtool("check", "config", "--syntax-only", tmp_path / "federate.yml")

    def test_the_queries_of_the_dashboard(self, tmp_path: Path) -> None:
        """As recording rules, which are checked."""
        texts = [text.replace("$__rate_interval", "1m").replace("$flow", ".*") for text in expressions()]
        rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
        (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
        promtool("check", "rules", "--lint=none", tmp_path / "rules.yml")

    def test_every_alert_rings_for_what_it_is_for(self, tmp_path: Path) -> None:
        assert set(SERIES) == {rule["alert"] for rule in alerts()}
        tests = [
            {
                "name": name,
                "interval": "10s",
                "input_series": [{"series": series, "values": values} for series, values in given.items()],
                # The annotations are left to the rules: that the alert is there, and no other, is asked of ALERTS.
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "16m",
                        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
                    }
                ],
            }
            for name, given in SERIES.items()
        ]
        text = {"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "10s", "tests": tests}
        (tmp_path / "tests.yml").write_text(yaml.safe_dump(text))
        promtool("test", "rules", tmp_path / "tests.yml")

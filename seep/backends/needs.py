"""What a scheduler needs to be there, looked at before anything is started or changed: one clear line if it is not."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seep.errors import Misuse
from seep.model.counts import whole
from seep.model.ids import BUCKETS
from seep.runtime.addresses import shown

JAVA = 17
COUNT = r"\s*0*[1-9]\d*\s*"
MASTERS = (
    rf"spark://[^,/]+:\d+(,[^,/]+:\d+)*|local|local\[(\*|{COUNT})(,{COUNT})?\]|local-cluster\[{COUNT},{COUNT},{COUNT}\]"
    r"|yarn|k8s://.+"
)
"""As Spark reads them, with executors and cores: those it does not, or finds none for, end after a flow has begun."""
HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
PATIENCE_SECONDS = 5.0
LOCAL_WORKERS = 256
"""On one machine. Elsewhere as many as there are buckets: one more would own no key."""


def need_spark(master: str | None) -> None:
    _need_package("pyspark", "Spark", "spark")
    if master is not None and not re.fullmatch(MASTERS, master):
        known = "spark://HOST:PORT, local-cluster[EXECUTORS,CORES,MEGABYTES], local[CORES], yarn and k8s://HOST:PORT"
        raise Misuse(f"master={master!r}; Spark knows {known}")
    _need_java()
    _need_spark_home()
    _need_no_other_application()
    if master == "yarn" and not any(map(os.environ.get, HADOOP)):
        raise Misuse(f"master='yarn' is found by its configuration: set {' or '.join(HADOOP)} to its folder")
    if master is not None and master.startswith("spark://"):
        _need_server(f"the Spark master {master}", master.removeprefix("spark://"))


def need_ray(address: str | None) -> None:
    _need_package("ray", "Ray", "ray")
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        raise Misuse(
            "this process uses Ray already, and can do so once: call ray.shutdown() first, or use another process"
        )
    if address is not None:
        _need_server(f"Ray at {address}", address.removeprefix("ray://"))


def counted(on: str, workers: Any, spare: Any) -> tuple[int, int | None]:
    """How many workers are wanted: numbers, and no more than can be had."""
    most = LOCAL_WORKERS if on == "local" else BUCKETS
    return whole("workers", workers, 1, most), None if spare is None else whole("spare", spare, 0, most)


def check_addresses(prometheus: Any = None, **others: Any) -> None:
    """Those that are given are texts; that of Prometheus is looked at as a whole, since it need not be there yet."""
    for name, given in {"prometheus": prometheus, **others}.items():
        if given is not None and not isinstance(given, str):
            raise Misuse(f"{name}={given!r} is no address; give a text")
    if prometheus is not None and not _is_address(prometheus):
        raise Misuse(f"prometheus={shown(prometheus)!r} is no address; give one such as http://127.0.0.1:9090")


def _is_address(url: str) -> bool:
    try:
        found = urlsplit(url)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:  # what is no port, half of an IPv6 address
        return False


def need_redis(url: str) -> None:
    if not re.match(r"(redis|rediss|unix)://", url):
        raise Misuse(f"store={shown(url)!r}; there is redis://HOST:PORT/DATABASE, or nothing: the job's own directory")
    _need_package("redis", "the client of Redis", "redis")
    from seep.runtime.stores.redis import check

    check(url)


def need_objects(url: str) -> None:
    if "://" not in url:
        raise Misuse(
            f"checkpoints={shown(url)!r}; there is s3://BUCKET/FOLDER or file:///FOLDER, or nothing: the store"
        )
    from seep.runtime.stores.objects import check

    check(url)


def _need_package(module: str, name: str, extra: str) -> None:
    if find_spec(module) is None:
        raise Misuse(f"{name} is not installed: pip install seep[{extra}]")


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    found = _version(java) if java else ""
    if not found or int(found.partition(".")[0]) < JAVA:
        what = f"{java} is of version {found}" if found else f"{java} does not run" if java else "there is none"
        raise Misuse(f"Spark needs Java {JAVA}: {what}; install one (or newer), or set JAVA_HOME")


def _need_spark_home() -> None:
    """pyspark starts the Spark that is there; of another version than its own it understands no answer."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    from pyspark.version import __version__

    found = [re.sub(r".*_[\d.]+-(.*)\.jar", r"\1", jar.name) for jar in Path(home, "jars").glob("spark-core_*.jar")]
    if __version__ not in found:
        what = f"Spark {found[0]}" if found else "no Spark"
        raise Misuse(
            f"SPARK_HOME={home} has {what}, and pyspark is {__version__}; unset SPARK_HOME, or set it to that one"
        )


def _need_no_other_application() -> None:
    """A process has one at most: two flows, or a flow and a session of the user's, need a process each."""
    known = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    other = getattr(known, "_active_spark_context", None)
    process = getattr(getattr(known, "_gateway", None), "proc", None)
    if other is not None and (process is None or process.poll() is None):
        raise Misuse(
            f"this process has a Spark application already ({other.appName!r}), and can have one only: "
            "stop it first, or run the flow in another process"
        )


def _version(java: str) -> str:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return ""
    found = re.search(r'version "(\d[\d.]*)', said)
    return found[1] if found else ""


def _need_server(what: str, addresses: str) -> None:
    """One of these, ``host:port,host:port``, must listen; without a port it is the scheduler's to judge."""
    why: OSError | None = None
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), PATIENCE_SECONDS).close()
        except OSError as error:
            why = error
        else:
            return
    raise Misuse(f"{what} cannot be reached: {why}; is it running there?")

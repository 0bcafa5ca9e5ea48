#!/usr/bin/env bash
# Runs a flow on Spark: deploy/spark-submit.sh APP [options of `seep run`], for instance
#   MASTER=spark://127.0.0.1:7077 deploy/spark-submit.sh app.py --workers 4
# MASTER is any that Spark knows (without it: executors of our own, no cluster); SPARK_OPTIONS go to spark-submit.
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: [MASTER=...] [SPARK_OPTIONS=...] deploy/spark-submit.sh APP [options of seep run]" >&2; exit 2; }
app="$1"
shift
here="$(cd "$(dirname "$0")" && pwd)"
python="${PYTHON:-python3}"
master="${MASTER:-local-cluster[3,2,900]}"
submit="${SPARK_SUBMIT:-$("$python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')/bin/spark-submit}"

# Set but empty it would send Spark to the root directory.
[ -n "${SPARK_HOME:-}" ] || unset SPARK_HOME
PYSPARK_PYTHON="$(command -v "$python")"
export PYSPARK_PYTHON
# shellcheck disable=SC2086  # options are several words
exec "$submit" --master "$master" --name seep ${SPARK_OPTIONS:-} "$here/driver.py" \
    run "$app" --on spark --master "$master" "$@"

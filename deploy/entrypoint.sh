#!/usr/bin/env bash
# What a container of the image is: master | worker | flow APP [options] | executor (of Spark on Kubernetes) | a command.
set -euo pipefail

here="$(dirname "$0")"
spark="$(python3 -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')"
host="${SPARK_MASTER_HOST:-127.0.0.1}"
role="${1:-}"
[ $# = 0 ] || shift

case "$role" in
    master)
        exec "$spark/bin/spark-class" org.apache.spark.deploy.master.Master --host "$host" --port 7077 "$@"
        ;;
    worker)
        exec "$spark/bin/spark-class" org.apache.spark.deploy.worker.Worker --host "$host" \
            --cores "${WORKER_CORES:-2}" --memory "${WORKER_MEMORY:-2g}" "$@" "spark://$host:7077"
        ;;
    flow)
        # After a restart of the container it goes on from its durable state: a fresh start would forget all of it.
        # `begun` is there once a journal is, wherever that is kept.
        ! compgen -G "${SEEP_HOME:-.seep}/*/begun" >/dev/null || set -- "$@" --resume
        exec "$here/spark-submit.sh" "$@"
        ;;
    executor)
        # Spark hands an executor's Java options over one by one, as SPARK_JAVA_OPT_0, _1, ...
        mapfile -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/^[^=]*=//')
        exec java "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "$spark/jars/*" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" \
            --executor-id "$SPARK_EXECUTOR_ID" \
            --cores "$SPARK_EXECUTOR_CORES" \
            --app-id "$SPARK_APPLICATION_ID" \
            --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
            --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
    "") echo "give master, worker, flow APP, executor, or a command" >&2; exit 2 ;;
    *) exec "$role" "$@" ;;
esac

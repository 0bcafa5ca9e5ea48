#!/usr/bin/env bash
# Lines without end for deploy/app.py, some 240 a second: kafka-lines.sh SERVERS, in an image of Kafka.
set -euo pipefail

while sleep 0.1; do
    for _ in {1..12}; do
        echo '{"line": "to be or not to be"}'
        echo '{"line": "whether it is nobler in the mind to suffer"}'
    done
done | /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server "$1" --topic lines

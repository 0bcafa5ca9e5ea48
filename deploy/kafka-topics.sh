#!/usr/bin/env bash
# The topics of deploy/app.py, made where they are not there yet: kafka-topics.sh SERVERS, in an image of Kafka.
set -euo pipefail

for topic in lines counts; do
    /opt/kafka/bin/kafka-topics.sh --bootstrap-server "$1" --create --if-not-exists --topic "$topic" --partitions 4
done

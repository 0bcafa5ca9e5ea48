"""Kafka: topics as sources, read again by their offsets, and as sinks, written in transactions."""

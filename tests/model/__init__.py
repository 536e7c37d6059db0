"""Tests of exporter/model/."""

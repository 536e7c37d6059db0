"""The simulated node: what the demo, the tests and the benchmarks run the real exporter against."""

"""The file for a bug report: all that an exporter saw on a node. A machine plays it back."""

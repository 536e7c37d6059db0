"""Pages of GPU samples: from a URL, from a file, from pods that are found."""

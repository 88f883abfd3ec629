"""Side-by-side benchmarks of regluon and its peers; see README.md in this folder."""

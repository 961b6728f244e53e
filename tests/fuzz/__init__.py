"""The time fuzzer: looks for inputs that take more CPU than their length allows (`make fuzz`).

Inputs are programs of pieces that are repeated, so that a large one is a few lines of JSON. What is
found is kept in `tests/data/fuzz.json`, and `tests/unit/test_fuzz_corpus.py` replays it.
"""

"""Coverage-guided fuzzing of what reads bytes of others (`make fuzz`).

`atheris` varies the inputs of podsettle's Python code, libFuzzer those of linger's C code. Both
keep inputs that reach new code. The seeds, and each input that was found, are small files in
`tests/fuzz/corpus`. `tests/unit/test_fuzz_corpus.py` and
`tests/integration/linger/test_fuzz_corpus.py` replay them.
"""

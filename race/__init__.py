"""The reproducer of CRI-O's spurious exit code 255 (cri-o issue 9840): `make race`.

README.md says what it does, and how to use it without podsettle.
"""

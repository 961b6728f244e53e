"""A virtual machine with SELinux, made from Debian packages, for what no other machine shows."""

"""Compile the parts of the C library that linger is linked with.

`zig cc` would compile all of musl by itself, and it keeps one file open for each of musl's 1,000
sources until the last one is compiled: more than the 1,024 open files that builders such as buildah
allow. linger needs about 60 of them.

Zig 0.17 implements some of musl's functions in Zig (`lib/c.zig`: strings, small system calls), and
those that compilers emit calls to (`lib/compiler_rt.zig`: memcpy, memset).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from webhook.linger.zig import BuildError, run_zig, zig_library

ARCHITECTURES: Mapping[str, str] = {
    "x86_64-linux-musl": "x86_64",
    "aarch64-linux-musl": "aarch64",
    "s390x-linux-musl": "s390x",
    "powerpc64le-linux-musl": "powerpc64",
}
"""What musl calls the architecture of a target."""

MUSL_SOURCES: Mapping[str, Sequence[str]] = {
    "env": ("__environ", "__init_tls", "__libc_start_main", "getenv"),
    "errno": ("__errno_location", "strerror"),
    "exit": ("_Exit", "abort_lock", "exit"),
    "fcntl": ("open",),
    "internal": ("defsysinfo", "libc", "procfdname", "syscall_ret", "vdso"),
    "linux": ("prctl",),
    "locale": ("__lctrans",),
    "misc": ("ioctl", "syscall"),
    "network": (
        *("connect", "getsockopt", "htons", "inet_pton"),
        *("recv", "recvfrom", "send", "sendto", "socket"),
    ),
    "process": ("_Fork", "execvp", "fork", "waitpid"),
    "select": ("poll",),
    "signal": (
        *("block", "kill", "restore", "sigaction"),
        *("sigaddset", "sigemptyset", "sigismember", "sigprocmask", "sigtimedwait"),
    ),
    "stat": ("fchmod", "fstatat", "lstat"),
    "stdio": ("rename",),
    "thread": (
        *("__lock", "__set_thread_area", "__syscall_cp", "__timedwait"),
        *("default_attr", "lock_ptc", "pthread_setcancelstate", "pthread_sigmask"),
        *("pthread_rwlock_timedwrlock", "pthread_rwlock_trywrlock"),
        *("pthread_rwlock_unlock", "pthread_rwlock_wrlock"),
    ),
    "time": ("clock_gettime",),
    "unistd": ("read", "write", "writev"),
}
"""Files below musl's `src/`, without their suffix. The linker drops functions that nothing calls.

Where the linker reports an undefined symbol, add the file that defines it. Where a file is reported
missing after an upgrade of ziglang, its functions have moved to `lib/c.zig`: remove its name.
"""

MUSL_FLAGS = (
    *("-std=c99", "-ffreestanding", "-fno-builtin", "-fno-strict-aliasing", "-fomit-frame-pointer"),
    *("-D_XOPEN_SOURCE=700", "-DCRT", "-Wa,--noexecstack", "-w"),
)
"""As musl's own build has them: its sources rely on these."""


def compile_libc(directory: Path, *, target: str, flags: Sequence[str]) -> list[Path]:
    """Compile the C library for `target` into `directory`.

    `flags` are those of linger's own sources that musl can bear. Returns what to link, in the
    linker's order. Raises BuildError.
    """
    library = zig_library()
    musl = library / "libc/musl"
    architecture = ARCHITECTURES[target]
    includes = (f"arch/{architecture}", "arch/generic", "src/include", "src/internal", "include")
    run_zig(
        [
            *("cc", "-target", target, *MUSL_FLAGS, *flags),
            *(f"-I{musl / path}" for path in includes),
            *("-c", "-o", "musl.o", str(musl / "crt/crt1.c")),
            *(str(source) for source in _sources(musl / "src", architecture)),
        ],
        directory=directory,
        output="musl",
    )
    # -lc: for the types of the C library; a static library links nothing.
    options = ("-lc", "-target", target, "-OReleaseSmall", "-fstrip")
    sections = ("-ffunction-sections", "-fdata-sections")
    for name in ("c", "compiler_rt"):
        run_zig(
            [
                *("build-lib", *options, *sections),
                f"-femit-bin=lib{name}.a",
                str(library / f"{name}.zig"),
            ],
            directory=directory,
            output=f"lib{name}.a",
        )
    return [directory / name for name in ("musl.o", "libc.a", "libcompiler_rt.a")]


def _sources(directory: Path, architecture: str) -> list[Path]:
    """The files of MUSL_SOURCES, those for the architecture in place of the general ones."""
    sources = []
    for part, names in MUSL_SOURCES.items():
        for name in names:
            stems = (directory / part / architecture / name, directory / part / name)
            files = [
                stem.with_name(name + suffix) for stem in stems for suffix in (".c", ".s", ".S")
            ]
            found = next((file for file in files if file.is_file()), None)
            if found is None:
                raise BuildError(f"musl: {directory / part / name}.c does not exist")
            sources.append(found)
    return sources

"""The part of the C library that linger is linked with.

`zig cc` without `-nostdlib` would compile all of musl. It keeps a file open for each of musl's
1,000 sources until it has compiled the last one. Together with other open files, these exceed the
limit of 1,024 open files in builders such as buildah. linger needs about 90 of the sources.

Zig 0.17 implements some of musl's functions in Zig: strings and small system calls in `lib/c.zig`,
and functions that compilers emit calls to, such as memcpy, in `lib/compiler_rt.zig`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from webhook.linger.zig import BuildError, run_zig, zig_library

# Zig's names of the targets, and musl's names of their architectures.
ARCHITECTURES: Mapping[str, str] = {
    "x86_64-linux-musl": "x86_64",
    "aarch64-linux-musl": "aarch64",
    "s390x-linux-musl": "s390x",
    "powerpc64le-linux-musl": "powerpc64",
}

# Files below musl's `src/`, without their suffix. The linker drops functions that are not called.
#
# If the linker reports an undefined symbol, add the file that defines it. If a file does not exist
# after an upgrade of ziglang, its functions have moved to `lib/c.zig`: remove its name.
MUSL_SOURCES: Mapping[str, Sequence[str]] = {
    "env": ("__environ", "__init_tls", "__libc_start_main", "getenv"),
    "errno": ("__errno_location", "strerror"),
    "exit": ("_Exit", "abort_lock", "exit"),
    "fcntl": ("open",),
    "internal": ("defsysinfo", "libc", "procfdname", "syscall_ret", "vdso"),
    "linux": ("prctl",),
    "locale": ("__lctrans",),
    "misc": ("ioctl", "syscall"),
    "multibyte": ("internal", "mbrtowc", "mbsrtowcs", "mbstowcs"),
    "network": (
        *("bind", "connect", "getsockname", "getsockopt", "htons", "if_nametoindex"),
        *("inet_aton", "inet_pton", "recv", "recvfrom", "recvmsg"),
        *("send", "sendmsg", "sendto", "setsockopt", "socket"),
        # getaddrinfo() and what it calls.
        *("dn_expand", "dn_skipname", "dns_parse", "getaddrinfo", "lookup_ipliteral"),
        *("lookup_name", "lookup_serv", "res_mkquery", "res_msend", "resolvconf"),
    ),
    "process": ("_Fork", "execvp", "fork", "waitpid"),
    "select": ("poll",),
    "signal": (
        *("block", "kill", "restore", "setitimer", "sigaction"),
        *("sigaddset", "sigemptyset", "sigismember", "sigprocmask", "sigtimedwait"),
    ),
    "stat": ("fchmod", "fstatat", "lstat"),
    "stdio": (
        *("__fclose_ca", "__fopen_rb_ca", "__lockfile", "__stdio_close", "__stdio_exit"),
        *("__stdio_read", "__stdio_seek", "__toread", "__uflow"),
        *("fgets", "getc", "ofl", "rename"),
    ),
    "thread": (
        *("__lock", "__set_thread_area", "__syscall_cp", "__timedwait"),
        *("default_attr", "lock_ptc", "pthread_cleanup_push", "pthread_setcancelstate"),
        *("pthread_sigmask",),
        *("pthread_rwlock_timedwrlock", "pthread_rwlock_trywrlock"),
        *("pthread_rwlock_unlock", "pthread_rwlock_wrlock"),
    ),
    "time": ("clock_gettime",),
    "unistd": ("lseek", "read", "write", "writev"),
}

# The flags of musl's own build. Its sources rely on them.
MUSL_FLAGS = (
    *("-std=c99", "-ffreestanding", "-fno-builtin", "-fno-strict-aliasing", "-fomit-frame-pointer"),
    *("-D_XOPEN_SOURCE=700", "-DCRT", "-Wa,--noexecstack", "-w"),
)


def compile_libc(directory: Path, *, target: str, flags: Sequence[str]) -> list[Path]:
    """Compile the C library for `target` into `directory`.

    `flags` are compiler flags in addition to MUSL_FLAGS. Return the files to link, in the order for
    the linker. Raises BuildError if the compiler fails.
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
    # -lc only makes the types of the C library available. Building a static library links nothing.
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
    """Return the paths of MUSL_SOURCES, preferring files that are specific to the architecture.

    Raises BuildError if a file does not exist.
    """
    sources = []
    for subdirectory, names in MUSL_SOURCES.items():
        for name in names:
            stems = (
                directory / subdirectory / architecture / name,
                directory / subdirectory / name,
            )
            files = [
                stem.with_name(name + suffix) for stem in stems for suffix in (".c", ".s", ".S")
            ]
            source = next((file for file in files if file.is_file()), None)
            if source is None:
                raise BuildError(
                    f"musl: {directory / subdirectory / name}.c does not exist; "
                    "see MUSL_SOURCES in webhook/linger/musl_build.py"
                )
            sources.append(source)
    return sources
